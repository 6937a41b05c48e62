"""Settings of decoding: the encoding of keys and values, and the schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple


class RegistrySettings(NamedTuple):
    """How to reach the registry. Paths are absolute. Each request reads the secrets from their files again."""

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
