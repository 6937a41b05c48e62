"""A page of text in blocks; an unchanged block is rendered and compressed only once.

Most of a large cluster's page does not change between collections: log starts, statuses, partitions at rest. Gzip lets
blocks be compressed separately: each ends with a flush after which nothing refers back (RFC 1951, Z_FULL_FLUSH), and
the check sums combine. Clients see one gzip member; some read only the first of several.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from functools import reduce
from typing import NamedTuple

from isal import isal_zlib

_LEVEL = 1
_RAW = -15
"""zlib's window bits for a raw stream without a header."""
_HEADER = bytes.fromhex("1f8b08000000000004ff")
"""A gzip header without name and time, of an unknown system."""
_LAST = bytes.fromhex("0300")
"""An empty deflate block that ends the stream."""


class _Packed(NamedTuple):
    body: bytes
    crc: int
    size: int
    """Bytes of the text."""


class TextBlock:
    """Lines of a page. Keeps what was rendered, and nothing before it is requested."""

    __slots__ = ("_make", "_packed", "_text")

    def __init__(self, make: Callable[[], bytes]) -> None:
        """`make` returns the same text each time."""
        self._make = make
        self._text: bytes | None = None
        self._packed: _Packed | None = None

    def text(self) -> bytes:
        if self._text is None:
            self._text = self._make()
        return self._text

    def packed(self) -> _Packed:
        if self._packed is None:
            text = self._make() if self._text is None else self._text
            compressor = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
            body = compressor.compress(text) + compressor.flush(isal_zlib.Z_FULL_FLUSH)
            self._packed = _Packed(body, isal_zlib.crc32(text), len(text))
        return self._packed


def plain(blocks: Iterable[TextBlock]) -> bytes:
    return b"".join(block.text() for block in blocks)


def gzipped(blocks: Iterable[TextBlock]) -> bytes:
    packed = [block.packed() for block in blocks]
    crc = reduce(lambda crc, each: isal_zlib.crc32_combine(crc, each.crc, each.size), packed, 0)
    size = sum(each.size for each in packed) & 0xFFFFFFFF
    return b"".join((_HEADER, *(each.body for each in packed), _LAST, struct.pack("<II", crc, size)))
