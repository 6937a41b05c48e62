"""The binary format of a block: up to some hundreds of messages of one partition, stored by columns.

    b"KB" · version (1 byte) · codec (1 byte) · length of the msgpack (u32 big-endian) · CRC-32 (u32 big-endian) ·
    msgpack, compressed with the codec

The CRC-32 covers all other bytes in order. The msgpack is a map {"o","t","k","v","h"}:

- `o`: offsets as int64 little-endian bytes, or None if they have no gaps after `Block.first`.
- `t`: Kafka timestamps in milliseconds as int64 bytes.
- `k`, `v`: keys and values, each as a pair, or None if all are null. The pair has the lengths as int32 bytes (-1 for
  null) and the joined keys or values.
- `h`: headers, encoded like `k`. A message's headers are JSON, `[{"k": key, "v": base64}]`, or null if there are none.
  A header whose value is null has no `v`.

Columns are built from whole Arrow buffers, which makes puts fast (benchmarks/pipeline.py).
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise, repeat
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from zlib_ng import zlib_ng

from kctl_agent.errors import StorageError
from kctl_agent.message import Headers, Message

MAGIC = b"KB"
VERSION = 2
CODECS = ("none", "snappy", "lz4", "zstd")
HEADER = struct.Struct("!2sBBI")
CHECKSUM = struct.Struct("!I")
BLOCK_BYTES = 1 << 20
MAP_OF_5, PAIR, NIL, BIN_32 = b"\x85", b"\x92", b"\xc0", struct.Struct("!BI")
"""msgpack is written here, because its own packer copies the message bytes twice. Format:
https://github.com/msgpack/msgpack/blob/master/spec.md"""

Bytes = bytes | memoryview


class BadBlock(StorageError, code="bad_block"):
    """The bytes are not a block, are damaged, or have a version or codec that this release does not know."""


@dataclass(frozen=True, slots=True)
class BinaryColumn:
    """Byte strings, joined in order. Message i has `lengths[i]` bytes of `data`. A length of -1 means null."""

    lengths: NDArray[np.int32]
    data: Bytes

    def values(self) -> Iterator[bytes | None]:
        at = 0
        data = bytes(self.data)
        for length in self.lengths.tolist():
            if length < 0:
                yield None
            else:
                yield data[at : at + length]
                at += length


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a block. `keys`, `values` or `headers` is None if it is null in all messages."""

    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    keys: BinaryColumn | None
    values: BinaryColumn | None
    headers: BinaryColumn | None

    def __len__(self) -> int:
        return len(self.offsets)

    def take(self, wanted: NDArray[np.bool_]) -> Columns:
        columns = (self.keys, self.values, self.headers)
        return Columns(
            self.offsets[wanted],
            self.timestamps[wanted],
            *(column and binary_column(list(compress(column.values(), wanted.tolist()))) for column in columns),
        )

    def split(self, size: int, most_bytes: int | None = None) -> Iterator[Columns]:
        """Yields parts of at most `size` messages and `most_bytes` bytes. A message with more bytes is its own part."""
        return self.cut(self._edges(size, most_bytes))

    def cut(self, edges: Sequence[int]) -> Iterator[Columns]:
        keys, values, headers = (_cut(column, edges) for column in (self.keys, self.values, self.headers))
        for i, (begin, end) in enumerate(pairwise(edges)):
            yield Columns(self.offsets[begin:end], self.timestamps[begin:end], keys[i], values[i], headers[i])

    def _edges(self, size: int, most_bytes: int | None) -> list[int]:
        total = len(self)
        binary = [column for column in (self.keys, self.values, self.headers) if column is not None]
        if most_bytes is None or sum(len(column.data) for column in binary) <= most_bytes:
            return [*range(0, total, size), total]
        sums = sum((_sums(column) for column in binary), np.zeros(total + 1, np.int64))
        edges = [0]
        while edges[-1] < total:
            begin = edges[-1]
            fitting = int(np.searchsorted(sums, sums[begin] + most_bytes, "right")) - 1
            edges.append(min(max(fitting, begin + 1), begin + size, total))
        return edges

    @property
    def bytes(self) -> int:
        return sum(len(column.data) for column in (self.keys, self.values) if column is not None)


def _sums(column: BinaryColumn) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(np.maximum(column.lengths, 0), dtype=np.int64)))


def _cut(column: BinaryColumn | None, edges: Sequence[int]) -> list[BinaryColumn | None]:
    if column is None:
        return [None] * len(edges)
    sums, data = _sums(column), memoryview(column.data)
    return [
        BinaryColumn(column.lengths[begin:end], data[int(sums[begin]) : int(sums[end])])
        for begin, end in pairwise(edges)
    ]


@dataclass(frozen=True, slots=True)
class Block:
    topic: str
    topic_id: str | None
    partition: int
    first: int
    last: int
    count: int
    body: bytes

    @classmethod
    def of(cls, topic: str, topic_id: str | None, partition: int, columns: Columns, codec: str) -> Block:
        first, last = int(columns.offsets[0]), int(columns.offsets[-1])
        return cls(topic, topic_id, partition, first, last, len(columns), encode(columns, codec))

    def messages(self, tries: int = 0) -> list[Message]:
        columns = decode(self.body, self.first, self.count)
        keys = columns.keys.values() if columns.keys else repeat(None)
        values = columns.values.values() if columns.values else repeat(None)
        headers = map(_headers, columns.headers.values()) if columns.headers else repeat(())
        topic, partition = self.topic, self.partition
        return [
            Message(topic, partition, offset, key, value, timestamp, header, tries)
            for offset, timestamp, key, value, header in zip(
                columns.offsets.tolist(), columns.timestamps.tolist(), keys, values, headers, strict=False
            )
        ]


def _headers(text: bytes | None) -> Headers:
    if text is None:
        return ()
    try:
        return tuple((pair["k"], base64.b64decode(pair["v"]) if "v" in pair else None) for pair in json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise BadBlock(f"a damaged block: headers that cannot be read ({type(error).__name__})") from error


def pack(messages: Sequence[Message]) -> Columns:
    return Columns(
        np.array([message.offset for message in messages], np.int64),
        np.array([message.timestamp for message in messages], np.int64),
        binary_column([message.key for message in messages]),
        binary_column([message.value for message in messages]),
        binary_column([_header_json(message.headers) for message in messages]),
    )


def _header_json(headers: Headers) -> bytes | None:
    pairs = [{"k": k} if v is None else {"k": k, "v": base64.b64encode(v).decode()} for k, v in headers]
    return json.dumps(pairs).encode() if pairs else None


def binary_column(values: list[bytes | None]) -> BinaryColumn | None:
    if all(value is None for value in values):
        return None
    lengths = np.array([-1 if value is None else len(value) for value in values], np.int32)
    return BinaryColumn(lengths, b"".join(value or b"" for value in values))


def encode(columns: Columns, codec: str = "none") -> bytes:
    if codec not in CODECS:
        raise BadBlock(f"codec {codec!r} is not known; known are: {', '.join(CODECS)}")
    offsets = columns.offsets
    gapless = int(offsets[-1]) - int(offsets[0]) + 1 == len(offsets)
    pieces: list[Bytes] = [
        MAP_OF_5,
        *(b"\xa1o", *((NIL,) if gapless else _bin(offsets.astype("<i8").tobytes()))),
        *(b"\xa1t", *_bin(columns.timestamps.astype("<i8").tobytes())),
        *(b"\xa1k", *_pair(columns.keys)),
        *(b"\xa1v", *_pair(columns.values)),
        *(b"\xa1h", *_pair(columns.headers)),
    ]
    length = sum(map(len, pieces))
    header = HEADER.pack(MAGIC, VERSION, CODECS.index(codec), length)
    if codec != "none":
        pieces = [pa.Codec(codec).compress(b"".join(pieces), asbytes=True)]
    return b"".join((header, CHECKSUM.pack(_checksum(header, *pieces)), *pieces))


def _checksum(*pieces: Bytes) -> int:
    found = 0
    for piece in pieces:
        found = zlib_ng.crc32(piece, found)  # ten times as fast as `zlib.crc32` (benchmarks/README.md)
    return found


def _pair(column: BinaryColumn | None) -> tuple[Bytes, ...]:
    return (NIL,) if column is None else (PAIR, *_bin(column.lengths.astype("<i4").tobytes()), *_bin(column.data))


def _bin(data: Bytes) -> tuple[bytes, Bytes]:
    return BIN_32.pack(0xC6, len(data)), data


def decode(body: bytes, first: int, count: int) -> Columns:
    if len(body) < HEADER.size + CHECKSUM.size or body[:2] != MAGIC:
        raise BadBlock("these bytes are not a block")
    _, version, codec, length = HEADER.unpack_from(body)
    if version != VERSION or codec >= len(CODECS):
        raise BadBlock(f"a block of version {version} with codec {codec}; this release reads version {VERSION}")
    payload: Bytes = memoryview(body)[HEADER.size + CHECKSUM.size :]
    if CHECKSUM.unpack_from(body, HEADER.size)[0] != _checksum(memoryview(body)[: HEADER.size], payload):
        raise BadBlock("a damaged block: its bytes do not fit its checksum")
    try:
        if codec:
            payload = pa.Codec(CODECS[codec]).decompress(payload, length, asbytes=True)
        fields: dict[str, Any] = msgpack.unpackb(payload)
        columns = Columns(
            np.arange(first, first + count) if fields["o"] is None else np.frombuffer(fields["o"], "<i8"),
            np.frombuffer(fields["t"], "<i8"),
            _unpack(fields["k"]),
            _unpack(fields["v"]),
            _unpack(fields["h"]),
        )
    except (ValueError, KeyError, TypeError, OSError, msgpack.UnpackException) as error:
        raise BadBlock(f"a damaged block ({type(error).__name__})") from error
    lengths = {len(c.lengths) for c in (columns.keys, columns.values, columns.headers) if c is not None} | {
        len(columns.timestamps)
    }
    if lengths | {len(columns)} != {count}:
        raise BadBlock(f"a block of {count} messages holds columns of {sorted(lengths)}")
    return columns


def _unpack(pair: list[bytes] | None) -> BinaryColumn | None:
    if pair is None:
        return None
    lengths, data = pair
    return BinaryColumn(np.frombuffer(lengths, "<i4"), data)
