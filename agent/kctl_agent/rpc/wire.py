"""Bytes in, JSON objects out, and back: no socket, no clock, no meaning.

A frame is 4 bytes unsigned big-endian length, then that many bytes of UTF-8 JSON, one object (docs/protocol.md). A read
ends with a frame, cleanly between two frames (`Decoder.at_boundary`), or broken inside one (`Decoder.end`).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, NoReturn, TypeAlias, TypeVar

from kctl_agent.errors import BadPayload, BrokenFrame, FrameTooLarge, WireError

JsonObject: TypeAlias = dict[str, Any]
_T = TypeVar("_T")

HEADER_BYTES: Final = 4
_LENGTH: Final = struct.Struct(">I").unpack_from
MAX_REQUEST_BYTES: Final = 1 << 20
MAX_REPLY_BYTES: Final = 16 << 20


def encode(message: Mapping[str, object], limit_bytes: int = MAX_REPLY_BYTES) -> bytes:
    """Turn one object into a frame: compact JSON, non-ASCII escaped, so that a lone surrogate cannot break it. Raises
    FrameTooLarge: the JSON is longer than `limit_bytes`; BadPayload: the message holds a NaN or an Infinity; TypeError:
    the message holds something that JSON has no word for; a bug of the caller."""
    return frame_of(json_text(message), limit_bytes)


def json_text(value: object) -> str:
    """Compact ASCII JSON of any value, for a message put together from texts. Raises BadPayload, TypeError."""
    try:
        return _to_json(value)
    except ValueError as error:
        raise BadPayload("the message holds a NaN or an Infinity, which JSON has no word for") from error


quote: Final[Callable[[str], str]] = json.encoder.encode_basestring_ascii
"""A JSON string of a text, ASCII."""


def frame_of(text: str, limit_bytes: int = MAX_REPLY_BYTES) -> bytes:
    """Put the length before a message that is JSON already. Raises FrameTooLarge."""
    size = len(text)
    if size > limit_bytes:
        raise FrameTooLarge(f"the message has {size} bytes, the limit is {limit_bytes}")
    return size.to_bytes(HEADER_BYTES, "big") + text.encode("ascii")


class FrameDecoder(Generic[_T]):
    """Collects the bytes of one connection and returns its frames; one per connection, used by one thread. However the
    bytes are split, the same frames come out, and after them the same error: a bad frame that arrives together with
    good ones is kept in `error` and raised by the next `feed`. Nothing is read beyond it."""

    __slots__ = ("_buffer", "_limit_bytes", "_parse", "error")

    def __init__(self, limit_bytes: int, parse: Callable[[bytes | bytearray], _T]) -> None:
        """`parse` makes of a frame's body what is returned, and raises a WireError: `parse_object`, or stricter."""
        self._limit_bytes, self._parse = limit_bytes, parse
        self._buffer = bytearray()
        self.error: WireError | None = None
        """The bad frame met behind the frames last handed out."""

    @property
    def at_boundary(self) -> bool:
        """Whether the bytes so far end with a whole frame: an end here is a clean one."""
        return not self._buffer

    def feed(self, data: bytes) -> list[_T]:
        """Add bytes, return the frames they complete, in order. Raises FrameTooLarge: a length above the limit, judged
        before any byte of its body; BadPayload: no UTF-8, no JSON object, or a NaN or an Infinity."""
        if self.error is not None:
            raise self.error
        size = len(data)
        # Nearly always the bytes are one whole frame: no buffer, no loop.
        if not self._buffer and HEADER_BYTES < size <= self._limit_bytes and _LENGTH(data)[0] == size - HEADER_BYTES:
            try:
                return [self._parse(data[HEADER_BYTES:])]
            except WireError as error:
                self.error = error
                raise
        return self._feed_buffer(data)

    def _feed_buffer(self, data: bytes) -> list[_T]:
        buffer = self._buffer
        buffer += data
        frames: list[_T] = []
        start, size = 0, len(buffer)
        try:
            while size - start >= HEADER_BYTES:
                body = start + HEADER_BYTES
                length = _LENGTH(buffer, start)[0]
                if length > self._limit_bytes:
                    raise FrameTooLarge(f"the frame has {length} bytes, the limit is {self._limit_bytes}")
                if size - body < length:
                    break
                frames.append(self._parse(buffer[body : body + length]))
                start = body + length
        except WireError as error:
            self.error = error
            if not frames:
                raise
        del buffer[:start]
        return frames

    def end(self) -> None:
        """Report that the peer has closed. Raises BrokenFrame: the bytes so far end inside a frame."""
        if self._buffer:
            raise BrokenFrame("the peer closed inside a frame")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:  # 1e999 is an Infinity in disguise
        raise ValueError("a number beyond the range of a double")
    return number


def _json_encoder() -> Callable[[object], str]:
    """One C encoder for all messages: `JSONEncoder.encode` makes a new one for each, at the price of 200 bytes more."""
    encoder = json.JSONEncoder(allow_nan=False, check_circular=False, separators=(",", ":"))
    make = getattr(json.encoder, "c_make_encoder", None)  # CPython only, and not documented
    if make is None:
        return encoder.encode
    chunks_of = make(None, encoder.default, quote, None, ":", ",", False, False, False)
    join = "".join
    return lambda message: join(chunks_of(message, 0))


_to_json: Final = _json_encoder()
_parse: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite).raw_decode
_WHITESPACE: Final = " \t\n\r"


def parse_object(payload: bytes | bytearray) -> JsonObject:
    """One JSON object, as strictly as the wire takes it. `json.loads` lets NaN and Infinity pass, and makes an Infinity
    of 1e999. Raises BadPayload: it is not UTF-8, not JSON, not an object, or holds a NaN or an Infinity."""
    try:
        text = payload.decode()
        if text[:1] != "{":
            text = text.lstrip(_WHITESPACE)
        message, end = _parse(text)
        if end != len(text) and text[end:].strip(_WHITESPACE):
            raise ValueError("more than one value")
    except UnicodeDecodeError:
        raise BadPayload("the frame is not UTF-8") from None
    except (ValueError, RecursionError):  # RecursionError: a body of a million opening brackets
        raise BadPayload("the frame is not JSON") from None
    if type(message) is not dict:
        raise BadPayload("the frame is not a JSON object")
    return message


class Decoder(FrameDecoder[JsonObject]):
    """One whose frames are JSON objects of no known type."""

    __slots__ = ()

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes, parse_object)
