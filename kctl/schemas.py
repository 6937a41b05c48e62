"""Builds the format settings that a fleet's processes receive, and the decoder for showing messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kctl.config.sections import Config
from kctl.errors import ConfigError
from kctl.secrets import secret_of

if TYPE_CHECKING:
    from kctl_agent.schemas.decoding import Decoder


def decoder(config: Config) -> Decoder | None:
    """Returns the decoder for showing messages, or None if keys and values are plain bytes. Raises ConfigError."""
    if (config.kafka.key_format, config.kafka.value_format) == ("bytes", "bytes"):
        return None
    try:
        from kctl_agent.schemas.decoding import Decoder  # and fastavro, which a watcher need not install
    except ImportError as error:
        raise ConfigError(f"{config.path}: kafka.value_format and key_format need: pip install fastavro") from error
    from kctl_agent.schemas.formats import Formats

    return Decoder(Formats.of(formats(config)))


def formats(config: Config) -> dict[str, Any]:
    """Returns the argument of `kctl_agent.schemas.formats.Formats.of`, in JSON types. Raises ConfigError."""
    registry, folder = config.schema_registry, config.path.absolute().parent

    def path(name: str) -> str | None:
        given: str = getattr(registry, name)
        return str(folder / given) if given else None

    password = path("tls_key_password_file")
    where = f"{config.path}: schema_registry.tls_key_password_file"
    return {
        "key": config.kafka.key_format,
        "value": config.kafka.value_format,
        "registry": {
            "url": registry.url,
            "basic_auth_file": path("basic_auth_file"),
            "token_file": path("token_file"),
            "ca_file": path("tls_ca_file"),
            "certificate_file": path("tls_certificate_file"),
            "key_file": path("tls_key_file"),
            "key_password": None if password is None else secret_of(folder / password, where),
            "check_hostname": registry.tls_check_hostname,
        }
        if registry.url
        else None,
    }
