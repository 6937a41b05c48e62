"""Requests that return their responses as bytes, because kafka-python decodes 100,000 partitions too slowly.

To decode these bytes, the functions read single values of Kafka's flexible encoding (KIP-482). Each function returns
where the next value begins. Pure.
"""

import struct
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple


class RawResponse(NamedTuple):
    version: int
    body: bytes
    throttle_time_ms: int = 0


class Raw:
    """A kafka-python request whose response stays undecoded (`RawResponse`). Encodes its body only once."""

    def __init__(self, request: Any) -> None:
        object.__setattr__(self, "_request", request)
        object.__setattr__(self, "_body", None)

    def __getattr__(self, name: str) -> Any:
        return getattr(object.__getattribute__(self, "_request"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(object.__getattribute__(self, "_request"), name, value)

    def encode(self, *, header: bool = False, framed: bool = False) -> bytes:
        request, body = object.__getattribute__(self, "_request"), object.__getattribute__(self, "_body")
        if body is None:
            body = request.encode()  # for 10,000 partitions this takes as long as reading the response
            object.__setattr__(self, "_body", body)
        head = request.encode_header(flexible=request.flexible_version_q(request.API_VERSION)) if header else b""
        size = struct.pack(">i", len(head) + len(body)) if framed else b""
        return b"".join((size, head, body))

    @property
    def header(self) -> Any:
        return _Header(object.__getattribute__(self, "_request").header)


class KeptRequests:
    """Keeps encoded requests for the next poll. Encoding thousands of groups takes as long as reading the response."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[list[str], Raw]] = {}

    def of(self, key: Hashable, names: list[str], made: Callable[[list[str]], Any]) -> Raw:
        kept = self._kept.get(key)
        if kept is None or kept[0] != names:
            kept = self._kept[key] = names, Raw(made(names))
        return kept[1]


# kafka-python asks a request's header for the class that decodes the response.
class _Header:
    def __init__(self, header: Any) -> None:
        self._header = header

    def __getattr__(self, name: str) -> Any:
        return getattr(self._header, name)

    def get_response_class(self) -> Any:
        return _Decoder(self._header.get_response_class(), self._header.request_api_version)


class _Decoder:
    def __init__(self, kind: Any, version: int) -> None:
        self._kind, self._version = kind, version

    def parse_header(self, data: Any) -> Any:
        return self._kind.parse_header(data)

    def decode(self, data: Any) -> RawResponse:
        return RawResponse(self._version, data.read())


UNREADABLE = (IndexError, struct.error, UnicodeDecodeError)
"""The errors that truncated or malformed responses raise."""


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
    """Returns an array's length (0 for null) and the position of its first element."""
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
