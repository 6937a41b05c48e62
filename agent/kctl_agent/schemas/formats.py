"""Settings of decoding: the encoding of keys and values, the schema registry, and the decoding of this process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kctl_agent.message import decode_by


class RegistrySettings(NamedTuple):
    """Paths are absolute. Files with secrets are read at each request, so that you can replace them."""

    url: str
    basic_auth_file: str | None = None
    token_file: str | None = None
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    check_hostname: bool = True

    def __repr__(self) -> str:
        return f"RegistrySettings({self.url})"


@dataclass(frozen=True, slots=True)
class Formats:
    """How keys and values are encoded: `bytes`, `avro` or `json`."""

    key: str = "bytes"
    value: str = "bytes"
    registry: RegistrySettings | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> Formats:
        if given is None:
            return cls()
        registry = given.get("registry")
        return cls(given["key"], given["value"], RegistrySettings(**registry) if registry else None)


def decode_messages(formats: Formats) -> None:
    """Sets how `Message.decoded` decodes keys and values in this process."""
    if (formats.key, formats.value) == ("bytes", "bytes"):
        return
    from kctl_agent.schemas.decoding import Decoder  # and fastavro, which bytes do not need

    decoder = Decoder(formats)
    decode_by(
        lambda data, headers: decoder.value(data, headers).value, lambda data, headers: decoder.key(data, headers).value
    )
