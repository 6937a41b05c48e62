"""A block keeps every message as Kafka had it."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl_agent.storage.block import CODECS, BadBlock, BinaryColumn, Block, Columns, decode, encode

MESSAGES = st.lists(
    st.tuples(
        st.integers(1, 1000),
        st.integers(0, 2**41),
        st.none() | st.binary(max_size=20),
        st.none() | st.binary(max_size=40),
        st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), min_size=1, max_size=3),
    ),
    min_size=1,
    max_size=40,
)


def column(values: list[bytes | None]) -> BinaryColumn | None:
    if all(value is None for value in values):
        return None
    lengths = np.array([-1 if value is None else len(value) for value in values], np.int32)
    return BinaryColumn(lengths, b"".join(value or b"" for value in values))


def as_json(headers: list[tuple[str, bytes | None]]) -> bytes:
    """As Spark's to_json writes it: fields that are null are left out."""
    return json.dumps(
        [{"k": k} if v is None else {"k": k, "v": base64.b64encode(v).decode()} for k, v in headers]
    ).encode()


def columns(messages: list[tuple[object, ...]]) -> Columns:
    steps, timestamps, keys, values, headers = (list(field) for field in zip(*messages, strict=True))
    return Columns(
        np.cumsum(np.array(steps, np.int64)),
        np.array(timestamps, np.int64),
        column(keys),
        column(values),
        column([None if header is None else as_json(header) for header in headers]),
    )


@pytest.mark.shows("blocks give messages back with every codec: nulls, empties, headers, holes")
@given(MESSAGES, st.sampled_from(["none", "snappy", "lz4", "zstd"]), st.integers(1, 50))
def test_every_split_and_codec_gives_the_messages_back(
    messages: list[tuple[object, ...]], codec: str, size: int
) -> None:
    whole = columns(messages)

    records = []
    for part in whole.split(size):
        first, last = int(part.offsets[0]), int(part.offsets[-1])
        block = Block("t", None, 0, first, last, len(part), encode(part, codec))
        records += block.messages()

    assert [(r.timestamp, r.key, r.value) for r in records] == [m[1:4] for m in messages]
    assert [r.offset for r in records] == whole.offsets.tolist()
    assert [list(r.headers) for r in records] == [m[4] or [] for m in messages]


@given(MESSAGES, st.data())
def test_a_slice_is_the_messages_of_the_slice(messages: list[tuple[object, ...]], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(messages) - 1))
    end = data.draw(st.integers(begin + 1, len(messages)))

    part = columns(messages).slice(begin, end)

    block = Block("t", None, 0, int(part.offsets[0]), 0, len(part), encode(part))
    assert [(r.key, r.value) for r in block.messages()] == [m[2:4] for m in messages[begin:end]]


def test_null_and_empty_are_distinguished() -> None:
    part = Columns(np.arange(3), np.zeros(3, np.int64), None, column([None, b"", b"x"]), None)

    block = Block("t", None, 0, 0, 2, 3, encode(part))

    assert [r.value for r in block.messages()] == [None, b"", b"x"]
    assert [r.key for r in block.messages()] == [None, None, None]


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"KB",
        b"XX\x01\x00\0\0\0\3abc",
        b"KB\x09\x00\0\0\0\3abc",
        b"KB\x01\x07\0\0\0\3abc",
        b"KB\x01\x01\0\0\0\3abc",
        b"KB\x01\x00\0\0\0\3abc",
        b"KB\x01\x03\xff\xff\xff\xffabc",
        b"KB\x02\x00\0\0\0\3",
        b"KB\x02\x00\0\0\0\3\0\0\0\0abc",
    ],
)
def test_what_is_not_a_block_of_this_version_is_named_so(damage: bytes) -> None:
    with pytest.raises(BadBlock):
        decode(damage, 0, 1)


@pytest.mark.shows("a byte of a block that was changed is noticed; older blocks are read")
@given(MESSAGES, st.sampled_from(CODECS), st.data())
def test_a_byte_that_was_changed_is_found_out(
    messages: list[tuple[object, ...]], codec: str, data: st.DataObject
) -> None:
    whole = columns(messages)
    body = bytearray(encode(whole, codec))
    at = data.draw(st.integers(0, len(body) - 1), "where")
    body[at] ^= data.draw(st.integers(1, 255), "flipped bits")

    with pytest.raises(BadBlock):
        decode(bytes(body), int(whole.offsets[0]), len(whole))


@given(MESSAGES, st.sampled_from(CODECS), st.data())
def test_a_block_that_was_cut_off_is_found_out(
    messages: list[tuple[object, ...]], codec: str, data: st.DataObject
) -> None:
    whole = columns(messages)
    body = encode(whole, codec)

    with pytest.raises(BadBlock):
        decode(body[: data.draw(st.integers(0, len(body) - 1))], int(whole.offsets[0]), len(whole))


def version_1(body: bytes) -> bytes:
    """The same block as the release before wrote it: without a checksum."""
    return body[:2] + b"\x01" + body[3:8] + body[12:]


@given(MESSAGES, st.sampled_from(CODECS))
def test_a_block_of_version_1_is_read_as_before(messages: list[tuple[object, ...]], codec: str) -> None:
    whole = columns(messages)
    first, last = int(whole.offsets[0]), int(whole.offsets[-1])
    body = encode(whole, codec)

    old, new = (Block("t", None, 0, first, last, len(whole), each) for each in (version_1(body), body))

    assert old.messages() == new.messages()


WRITTEN_BY_VERSION_1 = {
    "none": "4b4201000000008685a16fc418050000000000000006000000000000000900000000000000a174c418010000000000000002000000"
    "000000000300000000000000a16b92c40c01000000ffffffff00000000c4016ba17692c40c03000000ffffffff05000000c4086f6e657468"
    "726565a16892c40cffffffff0b000000ffffffffc40b5b7b226b223a2261227d5d",
    "zstd": "4b4201030000008628b52ffd20862d030042c5131fa027e9ffff23ff077b96793f7c2d8abc74472c0018106364f87626b66b96a406"
    "861d8c60ca16858449db22aee5524a2c4d423002fec881b814a70effdbf63f884bddc7808fc2e61e1c1851c85c230800089587373306a381"
    "d1c080603430da00b6",
}


@pytest.mark.parametrize("codec", sorted(WRITTEN_BY_VERSION_1))
def test_these_very_bytes_of_version_1_are_read(codec: str) -> None:
    block = Block("t", None, 0, 5, 9, 3, bytes.fromhex(WRITTEN_BY_VERSION_1[codec]))

    assert [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in block.messages()] == [
        (5, 1, b"k", b"one", []),
        (6, 2, None, None, [("a", None)]),
        (9, 3, b"", b"three", []),
    ]


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_block_of_version_1_is_found_out_or_reads_as_many_messages(at: int, byte: int) -> None:
    part = Columns(np.arange(5), np.zeros(5, np.int64), None, column([b"one", None, b"", b"four", b"5"]), None)
    body = bytearray(version_1(encode(part)))
    body[at % len(body)] = byte

    try:
        found = decode(bytes(body), 0, 5)
    except BadBlock:
        return

    assert len(found) == 5
