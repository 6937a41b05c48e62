"""The framing of Confluent's serializers, by which a key or value names its schema. Pure.

A *prefix* is magic byte 0 and an id of 4 bytes, or magic byte 1 and a GUID of 16 bytes. It precedes the payload, or it
is the last header of a given name.
"""

from __future__ import annotations

from uuid import UUID

from kctl_agent.errors import Undecodable
from kctl_agent.message import Headers

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
SIZES = {0: 5, 1: 17}
"""Bytes of a prefix, by its magic byte."""
NOT_FRAMED = "NotFramed: no schema id precedes it, and no header names one"


def split(data: bytes, headers: Headers, header: str) -> tuple[bytes, bytes]:
    """Returns the prefix and the payload of a key or value. Raises Undecodable."""
    given = next((value for name, value in reversed(headers) if name == header and value is not None), None)
    prefix = _prefix_of(data if given is None else given)
    if prefix is None:
        raise Undecodable(NOT_FRAMED)
    return prefix, data[len(prefix) :] if given is None else data


def unframed(data: bytes, headers: Headers, header: str) -> bytes:
    """Returns the payload of a key or value that may be framed."""
    try:
        return split(data, headers, header)[1]
    except Undecodable:
        return data


def path_of(prefix: bytes) -> str:
    """Returns where a registry has the schema of a prefix."""
    number = prefix[1:]
    return f"/schemas/guids/{UUID(bytes=number)}" if prefix[0] else f"/schemas/ids/{int.from_bytes(number)}"


def named(prefix: bytes) -> str:
    """Returns a prefix for people: `id 7`."""
    return path_of(prefix).removeprefix("/schemas/").replace("s/", " ").replace("guid", "GUID")


def _prefix_of(data: bytes) -> bytes | None:
    size = SIZES.get(data[0]) if data else None
    return None if size is None or len(data) < size else data[:size]
