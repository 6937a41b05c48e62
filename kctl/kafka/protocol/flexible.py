"""Decodes Kafka's flexible encoding (KIP-482) piece by piece; each function also returns where the next piece begins.
Pure."""

from __future__ import annotations

import struct

UNREADABLE = (IndexError, struct.error, UnicodeDecodeError)
"""Truncated or malformed responses raise these."""


def varint(body: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = body[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7


def count_of(body: bytes, at: int) -> tuple[int, int]:
    """The length of an array; 0 if null."""
    number = body[at]
    if number < 0x80:
        return number and number - 1, at + 1
    number, at = varint(body, at)
    return number - 1, at


def text_of(body: bytes, at: int) -> tuple[str, int]:
    size, at = count_of(body, at)
    end = at + size
    if end > len(body):
        raise IndexError(f"a text of {size} bytes at {at} of {len(body)}")
    return body[at:end].decode(), end


def nullable_text_of(body: bytes, at: int) -> tuple[str | None, int]:
    return (None, at + 1) if body[at] == 0 else text_of(body, at)


def behind(body: bytes, at: int) -> int:
    size, at = count_of(body, at)
    return at + size


def behind_tags(body: bytes, at: int) -> int:
    if body[at] == 0:
        return at + 1
    count, at = varint(body, at)
    for _ in range(count):
        _, at = varint(body, at)
        size, at = varint(body, at)
        at += size
    return at
