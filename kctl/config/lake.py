"""The rules that join the settings of mode `lake`: where a table is, and what is of no use to it."""

from __future__ import annotations

import re
from urllib.parse import unquote, urlsplit

from kctl.config.sections import Config
from kctl.errors import ConfigError

__all__ = ["check_lake", "uri_hint"]

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")
"""Of a table without a transform, as Spark's source of Kafka names them."""


def check_lake(config: Config) -> None:
    """Of a configuration whose mode is `lake`. Raises ConfigError."""
    storage = config.storage
    if not storage.uri:
        raise ConfigError(
            f'{config.path}: storage.mode is "lake", but storage.uri is empty: name the folder of the table, as '
            "`file:///srv/lake/orders` or `s3://bucket/orders`"
        )
    path = unquote(urlsplit(storage.uri).path)
    if {".", ".."} & set(path.split("/")) or not path.strip("/") or re.search(r"[\x00-\x1f\x7f]", path):
        raise ConfigError(
            f"{config.path}: storage.uri is {storage.uri}, which names no folder of its own: write its path from the "
            "root on, without `.`, `..` and control characters"
        )
    _check_unused(config)
    _check_partition_by(config)
    if config.sinkers.count > 0 or config.sinkers.handler:
        given = f"sinkers.count is {config.sinkers.count}" if config.sinkers.count else "sinkers.handler is set"
        raise ConfigError(
            f'{config.path}: storage.mode is "lake" and {given}, but batches become rows of a table, and nothing waits '
            "for sinkers: leave them out, or use another mode"
        )


def uri_hint(uri: str) -> str:
    """What to write for a `storage.uri` that is refused, without a part of it: it may have keys in it."""
    scheme, colon, rest = uri.partition("://")
    if scheme in ("s3a", "s3n") and colon:
        return "; write s3:// for Spark's s3a://"
    if scheme == "s3":
        if rest.endswith("/"):
            return "; leave the `/` at its end out" if "/" in rest.rstrip("/") else "; name a folder in the bucket too"
        return "" if "/" in rest else "; name a folder in the bucket too"
    if uri.startswith("/"):
        return "; write file:// before the path"
    if uri.startswith("file:"):
        return "; an absolute path has three slashes: file:///srv/lake/orders"
    return f"; tables cannot be in {scheme}://" if colon else ""


def _check_unused(config: Config) -> None:
    """Settings that nobody would read: to set one is a mistake that nothing else shows."""
    storage = config.storage
    of_store = _first(endpoint=storage.endpoint, region=storage.region, credentials_file=storage.credentials_file)
    if of_store and not storage.uri.startswith("s3://"):
        raise ConfigError(
            f"{config.path}: storage.{of_store} is set and storage.uri is {storage.uri}, but only a table in an object "
            f"store has one: write uri as s3://BUCKET/PREFIX, or leave {of_store} out"
        )


def _first(**settings: object) -> str | None:
    """The name of the first that is set."""
    return next((name for name, value in settings.items() if value), None)


def _check_partition_by(config: Config) -> None:
    columns = config.storage.partition_by
    if twice := [name for at, name in enumerate(columns) if name in columns[:at]]:
        raise ConfigError(f"{config.path}: storage.partition_by names {twice[0]} twice: leave one out")
    unknown = [name for name in columns if name not in KAFKA_COLUMNS]
    if unknown and not config.workers.transform:
        raise ConfigError(
            f"{config.path}: storage.partition_by names {unknown[0]}, but without workers.transform the columns are "
            f"{', '.join(KAFKA_COLUMNS)}"
        )
