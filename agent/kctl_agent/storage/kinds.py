"""The kinds of storage, one for each value of `storage.mode`. Importing this module is cheap."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from kctl_agent.storage.base import Storage
    from kctl_agent.storage.lake.storage import LakeStorage

Settings: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    open: Callable[[Settings, float | None], Storage] | None = None
    """Opens a storage, with the seconds to wait for a server's reply; None for a table (`open_lake`)."""
    is_queue: bool = False
    is_handled_inside: bool = False
    """Workers call the handler inside their batch."""
    is_file: bool = False
    """The storage is a file, which executors on other machines cannot reach."""
    is_table: bool = False
    """Batches become rows; dead letters are in a second table."""


def open_storage(settings: Settings, *, reply_seconds: float | None = None) -> Storage:
    """Makes a storage without opening it. It can be pickled. Raises StorageError if the mode is unknown or `lake`."""
    from kctl_agent.errors import StorageError

    kind = KINDS.get(settings["mode"])
    if kind is None:
        raise StorageError(f"storage.mode is {settings['mode']!r}; known are: {', '.join(KINDS)}")
    if kind.open is None:
        raise StorageError(f'storage.mode is "{settings["mode"]}": rows go into a table, which has no queue')
    return kind.open(settings, reply_seconds)


def open_lake(settings: Settings) -> LakeStorage:
    """Makes the table storage of the settings without opening it. Raises StorageMisconfigured and TableRefused."""
    _need_packages(settings["uri"])
    from kctl_agent.storage.lake.folder import Folder, LocalFolder
    from kctl_agent.storage.lake.storage import LakeStorage
    from kctl_agent.storage.limits import StorageLimits

    uri = urlsplit(settings["uri"])
    folder: Folder = LocalFolder(Path(unquote(uri.path)))
    if uri.scheme == "s3":
        from kctl_agent.storage.lake.folder.s3 import S3Folder

        folder = S3Folder.of(settings)
    options = {name: settings[name] for name in ("partition_by", "target_file_bytes", "merge_schema")}
    return LakeStorage(folder, **options, limits=StorageLimits.of(settings))


def _need_packages(uri: str) -> None:
    from kctl_agent.storage.base import StorageMisconfigured

    needed = {"deltalake": 'storage.mode = "lake"'}
    if uri.startswith("s3://"):
        needed["obstore"] = "storage.uri = s3://…"
    if missing := {name: why for name, why in needed.items() if find_spec(name) is None}:
        raise StorageMisconfigured(
            f"{' and '.join(missing.values())} needs {', '.join(missing)}: pip install {' '.join(missing)}"
        )


def queue_options(settings: Settings) -> dict[str, Any]:
    from kctl_agent.storage.block import BLOCK_BYTES
    from kctl_agent.storage.limits import StorageLimits

    return {
        "block_messages": settings["block_messages"],
        "block_bytes": settings.get("block_bytes") or BLOCK_BYTES,
        "codec": settings["compression"],
        "limits": StorageLimits.of(settings),
    }


def _file(settings: Settings, _: float | None) -> Storage:
    from kctl_agent.storage.file.storage import DirectlyStorage, FileStorage

    kind = DirectlyStorage if settings["mode"] == "directly" else FileStorage
    return kind(Path(settings["path"]), **queue_options(settings))


def _redis(settings: Settings, reply_seconds: float | None) -> Storage:
    from kctl_agent.storage.redis import RedisStorage
    from kctl_agent.storage.redis.client import REPLY_SECONDS

    file = settings.get("password_file")
    options = queue_options(settings) | {"password_file": Path(file) if file else None}
    return RedisStorage(settings["url"], settings["namespace"], reply_seconds=reply_seconds or REPLY_SECONDS, **options)


KINDS: Final[Mapping[str, Kind]] = {
    "file": Kind(open=_file, is_queue=True, is_file=True),
    "redis": Kind(open=_redis, is_queue=True),
    "directly": Kind(open=_file, is_handled_inside=True, is_file=True),
    "lake": Kind(is_table=True),
}
MODES: Final = tuple(KINDS)
