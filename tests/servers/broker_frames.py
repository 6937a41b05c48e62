"""Kafka's frames as a broker reads and writes them: requests out of bytes, responses into bytes. No socket here.

The messages are kafka-python's own classes, so a frame that is built here is read by the code that reads a broker's.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kctl.kafka.protocol.wire import message_class, response_class

__all__ = ["Fields", "RequestFrames", "metadata_fields", "response_frame"]

Fields = Mapping[str, Any]
"""A message by the names kafka-python has for its fields; structs are mappings, arrays of structs lists of mappings."""

_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
_UNKNOWN_TOPIC: Final = 3


class RequestFrames:
    """Cuts a stream of bytes into requests. `feed` gives those that are complete."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Returns complete requests as kafka-python's objects, each with its `header`.

        Raises:
            ValueError: these are no requests, or of a kind or version that kafka-python does not know.
        """
        self._bytes += data
        found = []
        while (frame := self._next_frame()) is not None:
            found.append(_request(frame))
        return found

    def _next_frame(self) -> bytes | None:
        if len(self._bytes) < _SIZE.size:
            return None
        [size] = _SIZE.unpack_from(self._bytes)
        if not _HEAD.size <= size <= _MAX_REQUEST_BYTES:
            raise ValueError(f"a request of {size} bytes")
        end = _SIZE.size + size
        if len(self._bytes) < end:
            return None
        frame = bytes(self._bytes[_SIZE.size : end])
        del self._bytes[:end]
        return frame


def response_frame(request: Any, fields: Fields) -> bytes:
    """Returns the response to `request` in the request's version; fields that are not given have their default.

    Raises:
        ValueError: a field does not belong to the response.
    """
    kind = response_class(type(request))
    response = _message(kind, fields)
    response.API_VERSION = request.API_VERSION
    response.with_header(correlation_id=request.header.correlation_id)
    frame: bytes = response.encode(header=True, framed=True)
    return frame


class _Address(NamedTuple):
    host: str
    port: int


def metadata_fields(
    brokers: Mapping[int, str], leaders: Mapping[str, Sequence[int]], wanted: Iterable[str] | None = None
) -> Fields:
    """Returns the fields of a Metadata response: brokers as HOST:PORT by number, each topic as the leaders of its
    partitions (-1: none). With `wanted` only these topics, UNKNOWN_TOPIC_OR_PARTITION for those there are not."""
    addresses = {node: _address(text) for node, text in brokers.items()}
    names = list(leaders) if wanted is None else list(wanted)
    return {
        "brokers": [{"node_id": node, **address._asdict(), "rack": None} for node, address in addresses.items()],
        "cluster_id": "scripted",
        "controller_id": next(iter(brokers), -1),
        "topics": [_topic(name, leaders.get(name)) for name in names],
    }


def _request(frame: bytes) -> Any:
    key, version, _ = _HEAD.unpack_from(frame)
    known = message_class(key, is_request=True)
    if known is None or not 0 <= version <= known[1].max_version:
        raise ValueError(f"a request with api key {key}, version {version}")
    try:
        return known[1].decode(frame, version=version, header=True)
    except (IndexError, struct.error) as error:
        raise ValueError(f"{known[0]}, version {version}, cannot be read: {error}") from None


def _message(kind: Any, fields: Fields) -> Any:
    given = {name: {} for name, field in kind.fields.items() if field.is_struct() and field.tag is None} | dict(fields)
    built = {name: _value(kind.fields.get(name), value) for name, value in given.items()}
    return kind(**built)


def _value(field: Any, value: Any) -> Any:
    if field is not None and field.is_struct_array() and value is not None:
        return [_message(field.data_class, each) if isinstance(each, Mapping) else each for each in value]
    if field is not None and field.is_struct() and isinstance(value, Mapping):
        return _message(field.data_class, value)
    return value


def _topic(name: str, leaders: Sequence[int] | None) -> Fields:
    return {
        "error_code": _UNKNOWN_TOPIC if leaders is None else 0,
        "name": name,
        "is_internal": False,
        "partitions": [
            {
                "error_code": 0 if leader >= 0 else 5,
                "partition_index": number,
                "leader_id": leader,
                "replica_nodes": [leader] if leader >= 0 else [],
                "isr_nodes": [leader] if leader >= 0 else [],
                "offline_replicas": [],
            }
            for number, leader in enumerate(leaders or ())
        ],
    }


def _address(text: str) -> _Address:
    host, _, port = text.rpartition(":")
    return _Address(host, int(port))
