"""Decodes keys and values by `kafka.key_format` and `kafka.value_format`, for handlers and for display."""

import json
from typing import Any, NamedTuple

from kctl_agent.errors import RegistryUnusable, Undecodable
from kctl_agent.message import Headers
from kctl_agent.schemas.avro import decode
from kctl_agent.schemas.formats import Formats
from kctl_agent.schemas.framing import KEY_HEADER, VALUE_HEADER, split, unframed
from kctl_agent.schemas.plain import plain
from kctl_agent.schemas.registry import Registry


class Decoded(NamedTuple):
    """A decoded value. `schema` names its schema, such as `shop.Order (id 7)`, and is empty without a schema."""

    value: Any
    schema: str = ""


class Decoder:
    """Decodes keys and values. Thread-safe."""

    def __init__(self, formats: Formats) -> None:
        self.formats = formats
        self._registry = None if formats.registry is None else Registry(formats.registry)

    def value(self, data: bytes | None, headers: Headers) -> Decoded:
        """Decodes a value. Raises Undecodable, RegistryUnusable."""
        return self._decoded(self.formats.value, data, headers, VALUE_HEADER)

    def key(self, data: bytes | None, headers: Headers) -> Decoded:
        return self._decoded(self.formats.key, data, headers, KEY_HEADER)

    def document(self, name: str, data: bytes | None, headers: Headers) -> dict[str, Any]:
        """Decodes `data` for display. If `name` is `value`, returns `value_decoded` and, for Avro, `value_schema`. If
        decoding fails, returns `value_error`. Returns {} if `data` is None, or if the format is `bytes`."""
        form = self.formats.value if name == "value" else self.formats.key
        if data is None or form == "bytes":
            return {}
        try:
            found = self.value(data, headers) if name == "value" else self.key(data, headers)
            decoded = plain(found.value)
        except (Undecodable, RegistryUnusable) as error:
            return {f"{name}_error": str(error)}
        return {f"{name}_decoded": decoded, **({f"{name}_schema": found.schema} if found.schema else {})}

    def _decoded(self, form: str, data: bytes | None, headers: Headers, header: str) -> Decoded:
        if data is None or form == "bytes":
            return Decoded(data)
        if form == "json":
            return Decoded(_json(unframed(data, headers, header)))
        prefix, payload = split(data, headers, header)
        if self._registry is None:
            raise Undecodable("UnknownSchema: schema_registry.url is not set")
        schema = self._registry.by_prefix(prefix)
        return Decoded(decode(schema.text, payload), f"{schema.name} ({schema.label})")


def _json(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"BadRecord: not JSON: {error}") from error
