"""The rules that join the settings of mode `lake`: where a table is, and which settings do not apply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

from kctl.config.sections import Config

KAFKA_COLUMNS = ("topic", "partition", "offset", "timestamp", "timestampType", "key", "value", "headers")


def lake_mistakes(config: Config) -> Iterator[str]:
    storage, sinkers = config.storage, config.sinkers
    if not storage.uri:
        yield (
            'storage.mode is "lake", but storage.uri is empty: name the folder of the table, as '
            "`file:///srv/lake/orders` or `s3://bucket/orders`"
        )
    elif not _is_folder(unquote(urlsplit(storage.uri).path)):
        yield (
            f"storage.uri is {storage.uri}, which names no folder of its own: write its path from the root on, without "
            "`.`, `..` and control characters"
        )
    yield from _unused(config)
    yield from _of_columns(config)
    if sinkers.count > 0 or sinkers.handler:
        given = f"sinkers.count is {sinkers.count}" if sinkers.count else "sinkers.handler is set"
        yield (
            f'storage.mode is "lake" and {given}, but batches become rows of a table, and nothing waits for sinkers: '
            "leave them out, or use another mode"
        )


def uri_hint(uri: str) -> str:
    """Advises on a rejected `storage.uri` without quoting it, because it may contain keys."""
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


def _is_folder(path: str) -> bool:
    """Whether a path names a folder of its own, and always the same one."""
    return not ({".", ".."} & set(path.split("/")) or not path.strip("/") or re.search(r"[\x00-\x1f\x7f]", path))


def _unused(config: Config) -> Iterator[str]:
    """Yields settings that have no effect, because only kctl can reveal that mistake."""
    storage = config.storage
    if not storage.uri or storage.uri.startswith("s3://"):
        return
    for name in ("endpoint", "region", "credentials_file"):
        if getattr(storage, name):
            yield (
                f"storage.{name} is set and storage.uri is {storage.uri}, but only a table in an object store has one: "
                f"write uri as s3://BUCKET/PREFIX, or leave {name} out"
            )


def _of_columns(config: Config) -> Iterator[str]:
    columns = config.storage.partition_by
    if twice := [name for at, name in enumerate(columns) if name in columns[:at]]:
        yield f"storage.partition_by names {twice[0]} twice: leave one out"
    unknown = [name for name in columns if name not in KAFKA_COLUMNS]
    if unknown and not config.workers.transform and config.kafka.value_format != "avro":
        yield (
            f"storage.partition_by names {unknown[0]}, but without workers.transform the columns are "
            f"{', '.join(KAFKA_COLUMNS)}"
        )
