"""The `[storage]` section as `kctl_agent.storage.open_storage` reads it: for workers, sinkers and `kctl storage`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kctl.config.sections import Config, size_bytes

__all__ = ["dead_letters_of", "storage_settings", "table_folder", "table_folders"]


def table_folder(config: Config) -> Path | None:
    """Where the table of mode `lake` is on this machine; None: it is not."""
    uri = urlsplit(config.storage.uri)
    return Path(unquote(uri.path)) if config.storage.kind.is_table and uri.scheme == "file" else None


def dead_letters_of(table: Path) -> Path:
    """Where the table of its dead letters is."""
    return table.with_name(f"{table.name}_dead_letters")


def table_folders(config: Config) -> Iterator[tuple[str, Path]]:
    """The folders of this machine that a table of mode `lake` depends on, each with its setting: those of rows and of
    dead letters with their logs and plans, and the one where both are."""
    if (table := table_folder(config)) is not None:
        yield "storage.uri", table.parent
        for each in (table, dead_letters_of(table)):
            yield from (("storage.uri", folder) for folder in (each, each / "_delta_log", each / "_kctl"))


def storage_settings(config: Config) -> dict[str, Any]:
    """Ready for JSON. Without a namespace of their own, messages are kept under the name of the consumer group, so that
    two groups may share one Redis."""
    storage = config.storage
    return {
        "mode": storage.mode,
        "path": str(storage.path),
        "url": storage.url,
        "uri": storage.uri,
        "endpoint": storage.endpoint,
        "region": storage.region,
        "credentials_file": str(config.path.parent / storage.credentials_file) if storage.credentials_file else "",
        "partition_by": list(storage.partition_by),
        "merge_schema": storage.merge_schema,
        "target_file_bytes": size_bytes(storage.target_file_bytes),
        "password_file": str(config.path.parent / storage.password_file) if storage.password_file else "",
        "namespace": storage.namespace or config.kafka.group,
        "block_messages": storage.block_messages,
        "compression": storage.compression,
        "block_bytes": size_bytes(storage.block_bytes),
        "limit": storage.limit,
        "limit_bytes": size_bytes(storage.limit_bytes) or 0,
        "dead_limit": storage.dead_limit,
        "dead_expire_seconds": storage.dead_expire_seconds,
        "min_free_bytes": size_bytes(storage.min_free) or 0,
        "on_lost_offsets": storage.on_lost_offsets,
        "on_other_storage": storage.on_other_storage,
    }
