"""Where fetched messages wait for the handler: one contract (`base`), one file per kind."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from kctl_agent.storage.base import Storage, StorageError, StorageMisconfigured
from kctl_agent.storage.block import BLOCK_BYTES
from kctl_agent.storage.directly import DirectlyStorage
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.lake import LakeStorage
from kctl_agent.storage.lake.folder import Folder, LocalFolder
from kctl_agent.storage.memory import MemoryStorage
from kctl_agent.storage.redis import RedisStorage
from kctl_agent.storage.redis.client import REPLY_SECONDS
from kctl_agent.storage.room import Limits

__all__ = ["MODES", "open_lake", "open_storage"]

MODES = ("file", "redis", "directly", "memory")


def open_storage(settings: Mapping[str, Any], *, reply_seconds: float = REPLY_SECONDS) -> Storage:
    """The storage that the `[storage]` settings of a worker name. It opens no file and no connection yet.

    A server's reply is waited for `reply_seconds`. The result can be pickled: executors get it with their task, and
    wait as long as is usual.

    Raises:
        StorageError: the mode is not known.
    """
    common: dict[str, Any] = {
        "block_messages": settings["block_messages"],
        "block_bytes": settings.get("block_bytes") or BLOCK_BYTES,
        "codec": settings["compression"],
        "limits": Limits.of(settings),
    }
    mode = settings["mode"]
    if mode == "file":
        return FileStorage(Path(settings["path"]), **common)
    if mode == "directly":
        return DirectlyStorage(Path(settings["path"]), **common)
    if mode == "redis":
        password_file = Path(settings["password_file"]) if settings.get("password_file") else None
        return RedisStorage(
            settings["url"], settings["namespace"], password_file=password_file, reply_seconds=reply_seconds, **common
        )
    if mode == "memory":
        return MemoryStorage(**common)
    if mode == "lake":
        raise StorageError('storage.mode is "lake": rows go into a table, and nothing waits in a storage')
    raise StorageError(f"storage.mode is {mode!r}; known are: {', '.join(MODES)}")


def open_lake(settings: Mapping[str, Any]) -> LakeStorage:
    """The table that the `[storage]` settings of mode `lake` name. It opens no file and no connection yet.

    Raises:
        StorageMisconfigured: a package is missing, or the file with the keys of an object store cannot be read.
        TableRefused: a kind of table that cannot be there.
    """
    _need_packages(settings["uri"])
    return LakeStorage(
        _folder(settings),
        partition_by=settings["partition_by"],
        target_file_bytes=settings["target_file_bytes"],
        merge_schema=settings["merge_schema"],
        limits=Limits.of(settings),
    )


def _need_packages(uri: str) -> None:
    """Those of a table, each an extra of `kctl-agent`, before anything of them is imported."""
    needed = {"deltalake": 'storage.mode = "lake"'}
    if uri.startswith("s3://"):
        needed["obstore"] = "storage.uri = s3://…"
    if missing := {name: why for name, why in needed.items() if find_spec(name) is None}:
        raise StorageMisconfigured(
            f"{' and '.join(missing.values())} needs {', '.join(missing)}: pip install {' '.join(missing)}"
        )


def _folder(settings: Mapping[str, Any]) -> Folder:
    uri = urlsplit(settings["uri"])
    if uri.scheme == "s3":
        from kctl_agent.storage.lake.folder.s3 import S3Folder

        return S3Folder.of(settings)
    return LocalFolder(Path(unquote(uri.path)))
