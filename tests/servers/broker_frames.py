"""Kafka's frames as a broker decodes requests and encodes responses, without a socket.

It uses kafka-python's own message classes, so the client's decoder reads the frames built here.
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import import_module
from typing import Any, Final

Fields = Mapping[str, Any]
"""A message by kafka-python's field names. Structs are mappings, and arrays of structs lists of mappings."""

_MODULES = (
    "kafka.protocol.admin",
    "kafka.protocol.consumer",
    "kafka.protocol.metadata",
    "kafka.protocol.producer",
    "kafka.protocol.sasl",
    "kctl.kafka.protocol.messages",
)
_SIZE = struct.Struct(">i")
_HEAD = struct.Struct(">hhi")
_MAX_REQUEST_BYTES: Final = 16 * 1024 * 1024
_UNKNOWN_TOPIC: Final = 3


def request_classes() -> dict[str, Any]:
    """kafka-python's request classes, and ours, by the name in Kafka's documentation."""
    return _classes("Request")


class RequestFrames:
    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> list[Any]:
        """Returns complete requests as kafka-python's objects, each with its `header`. Raises ValueError for bytes that
        are not a request, or a kind or version that kafka-python does not know."""
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
    """Encodes the response in the request's version. Missing fields get their defaults. Raises ValueError if the
    response does not have a field."""
    name = type(request).__name__.removesuffix("Request")
    response = _message(_classes("Response")[name], fields)
    response.API_VERSION = request.API_VERSION
    response.with_header(correlation_id=request.header.correlation_id)
    frame: bytes = response.encode(header=True, framed=True)
    return frame


def metadata_fields(
    brokers: Mapping[int, str], leaders: Mapping[str, Sequence[int]], wanted: Iterable[str] | None = None
) -> Fields:
    """Fields of a Metadata response. `brokers` maps numbers to HOST:PORT, `leaders` topics to partition leaders (-1:
    none). With `wanted`, the response has only these topics, and UNKNOWN_TOPIC_OR_PARTITION for missing ones."""
    names = list(leaders) if wanted is None else list(wanted)
    return {
        "brokers": [{"node_id": node, **_address(text), "rack": None} for node, text in brokers.items()],
        "cluster_id": "scripted",
        "controller_id": next(iter(brokers), -1),
        "topics": [_topic(name, leaders.get(name)) for name in names],
    }


def _request(frame: bytes) -> Any:
    key, version, _ = _HEAD.unpack_from(frame)
    found = [(name, kind) for name, kind in request_classes().items() if key == kind.API_KEY]
    if not found or not 0 <= version <= found[0][1].max_version:
        raise ValueError(f"a request with api key {key}, version {version}")
    [(name, kind)] = found
    try:
        return kind.decode(frame, version=version, header=True)
    except (IndexError, struct.error) as error:
        raise ValueError(f"{name}, version {version}, cannot be read: {error}") from None


@cache
def _classes(ending: str) -> dict[str, Any]:
    return {
        name.removesuffix(ending): kind
        for module in map(import_module, _MODULES)
        for name, kind in sorted(vars(module).items())
        if name.endswith(ending) and isinstance(kind, type) and hasattr(kind, "API_KEY")
    }


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


def _address(text: str) -> Fields:
    host, _, port = text.rpartition(":")
    return {"host": host, "port": int(port)}
