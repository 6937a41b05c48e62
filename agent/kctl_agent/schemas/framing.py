"""Confluent's framing, by which a key or value identifies its schema.

A *prefix* is magic byte 0 and a 4-byte id, or magic byte 1 and a 16-byte GUID. The prefix precedes the payload, or is
the value of the last header named `__key_schema_id` or `__value_schema_id`.
"""

from uuid import UUID

from kctl_agent.errors import Undecodable
from kctl_agent.message import Headers

VALUE_HEADER, KEY_HEADER = "__value_schema_id", "__key_schema_id"
SIZES = {0: 5, 1: 17}  # the length of a prefix in bytes, by its magic byte
NOT_FRAMED = "NotFramed: no schema id precedes it, and no header names one"


def split(data: bytes, headers: Headers, header: str) -> tuple[bytes, bytes]:
    """Returns prefix and payload. Raises Undecodable if there is no prefix."""
    given = next((value for name, value in reversed(headers) if name == header), None)
    prefix = _prefix_of(data if given is None else given)
    if prefix is None:
        raise Undecodable(NOT_FRAMED)
    return prefix, data[len(prefix) :] if given is None else data


def unframed(data: bytes, headers: Headers, header: str) -> bytes:
    """Returns the payload without its prefix, or `data` if it has no prefix."""
    try:
        return split(data, headers, header)[1]
    except Undecodable:
        return data


def path_of(prefix: bytes) -> str:
    """Returns the URL path of the schema that a prefix names."""
    number = prefix[1:]
    return f"/schemas/guids/{UUID(bytes=number)}" if prefix[0] else f"/schemas/ids/{int.from_bytes(number)}"


def named(prefix: bytes) -> str:
    """Returns a readable name of the schema that a prefix names, such as `id 7`."""
    return path_of(prefix).removeprefix("/schemas/").replace("s/", " ").replace("guid", "GUID")


def _prefix_of(data: bytes) -> bytes | None:
    size = SIZES.get(data[0]) if data else None
    return None if size is None or len(data) < size else data[:size]
