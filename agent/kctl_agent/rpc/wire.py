"""Encodes and decodes frames. A frame is a 4-byte unsigned big-endian length, followed by that many bytes of UTF-8
JSON. The JSON is one object (docs/protocol.md)."""

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
    """Encodes a frame. Its JSON escapes all non-ASCII characters. Raises FrameTooLarge, BadPayload, TypeError."""
    return frame_of(json_text(message), limit_bytes)


def json_text(value: object) -> str:
    try:
        return _to_json(value)
    except ValueError as error:
        raise BadPayload("the message contains NaN or Infinity, which JSON does not allow") from error


quote: Final[Callable[[str], str]] = json.encoder.encode_basestring_ascii


def frame_of(text: str, limit_bytes: int = MAX_REPLY_BYTES) -> bytes:
    size = len(text)
    if size > limit_bytes:
        raise FrameTooLarge(f"the message has {size} bytes, the limit is {limit_bytes}")
    return size.to_bytes(HEADER_BYTES, "big") + text.encode("ascii")


class FrameDecoder(Generic[_T]):
    """Splits the bytes of one connection into frames. Not thread-safe."""

    __slots__ = ("_buffer", "_limit_bytes", "_parse", "error")

    def __init__(self, limit_bytes: int, parse: Callable[[bytes | bytearray], _T]) -> None:
        self._limit_bytes, self._parse = limit_bytes, parse
        self._buffer = bytearray()
        self.error: WireError | None = None
        """The error of a malformed frame that followed the frames already returned; the next `feed` raises it."""

    @property
    def at_boundary(self) -> bool:
        return not self._buffer

    def feed(self, data: bytes) -> list[_T]:
        """Returns the frames that `data` completes. Raises BadPayload, and FrameTooLarge once the length is known."""
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
        """Call this when the peer has closed the connection. Raises BrokenFrame if the last frame is incomplete."""
        if self._buffer:
            raise BrokenFrame("the peer closed the connection inside a frame")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:  # 1e999 is an Infinity in disguise
        raise ValueError("a number beyond the range of a double")
    return number


def _json_encoder() -> Callable[[object], str]:
    # `JSONEncoder.encode` makes an encoder for each message, which costs as much as 200 bytes.
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
    """Parses a JSON object. Unlike `json.loads`, rejects NaN, Infinity and 1e999. Raises BadPayload."""
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
    __slots__ = ()

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes, parse_object)
