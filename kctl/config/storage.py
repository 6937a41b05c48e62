"""Converts the `[storage]` section to the settings of `open_storage`, for workers, sinkers and `kctl storage`."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kctl.config.forms import size_bytes
from kctl.config.sections import Config
from kctl.config.values import as_json

_NOT_SENT = ("format", "min_free", "maintenance")


def table_folder(config: Config) -> Path | None:
    """Returns the folder of the storage's table if it is on this host, otherwise None."""
    uri = urlsplit(config.storage.uri)
    return Path(unquote(uri.path)) if config.storage.kind.is_table and uri.scheme == "file" else None


def dead_letters_of(table: Path) -> Path:
    return table.with_name(f"{table.name}_dead_letters")


def table_folders(config: Config) -> Iterator[tuple[str, Path]]:
    """If the table is on this host, yields `("storage.uri", folder)` for the table, its parent, its dead-letter table,
    and `_delta_log` and `_kctl` in both tables."""
    if (table := table_folder(config)) is not None:
        yield "storage.uri", table.parent
        for each in (table, dead_letters_of(table)):
            yield from (("storage.uri", folder) for folder in (each, each / "_delta_log", each / "_kctl"))


def storage_settings(config: Config) -> dict[str, Any]:
    """Returns the storage's settings as JSON types. An empty `namespace` becomes the group, for a shared Redis."""
    storage, folder = config.storage, config.path.parent
    given = {each.name: as_json(getattr(storage, each.name)) for each in fields(storage) if each.name not in _NOT_SENT}
    sizes = {name: size_bytes(given[name]) or 0 for name in ("block_bytes", "limit_bytes", "target_file_bytes")}
    files = {name: str(folder / given[name]) for name in ("credentials_file", "password_file") if given[name]}
    others = {"min_free_bytes": size_bytes(storage.min_free) or 0, "namespace": storage.namespace or config.kafka.group}
    return given | sizes | files | others
