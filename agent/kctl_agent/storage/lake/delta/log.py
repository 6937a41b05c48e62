"""The files of a Delta table's log, which other processes write and clean up concurrently."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet import ParquetFile

from kctl_agent.storage.lake.folder import Folder

LOG = "_delta_log"
CHECKPOINT = re.compile(
    r"(?P<version>\d{20})\.checkpoint(\.(?P<part>\d{10})\.(?P<parts>\d{10})|\.(?P<id>[0-9a-f-]{36}))?\.parquet"
)
ELSEWHERE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
ATTEMPTS = 5

T = TypeVar("T")


class LogUnreadable(ValueError):
    pass


class CheckpointDamaged(LogUnreadable):
    pass


class EntryMissing(LogUnreadable):
    def __init__(self, version: int) -> None:
        super().__init__(f"entry {version} of its log is not there")


def read_again(read: Callable[[], T], *raced: type[Exception]) -> T:
    """Calls `read`, and repeats this up to four times if it raises one of `raced`. While other processes change the
    log, a listing may omit a new entry or contain removed files. delta-rs then raises a plain DeltaError."""
    for _ in range(ATTEMPTS - 1):
        try:
            return read()
        except raced:
            continue
    return read()


@contextmanager
def reading_log(name: str) -> Iterator[None]:
    try:
        yield
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:  # also what pyarrow raises
        raise LogUnreadable(f"{name.rpartition('/')[2]} of its log cannot be read: {error}") from error


def entry_name(version: int) -> str:
    return f"{LOG}/{version:020}.json"


def checkpoint_name(version: int) -> str:
    return f"{LOG}/{version:020}.checkpoint.parquet"


def added(table: Folder, version: int) -> list[str]:
    found = actions(table, version)
    with reading_log(entry_name(version)):
        return [own_file(action["add"]["path"]) for action in found if "add" in action]


def own_file(path: str) -> str:
    """Returns the name in the table's folder for a path in the log. Raises LogUnreadable for a file elsewhere."""
    name = unquote(path)
    if name.startswith("/") or ELSEWHERE.match(name) or ".." in name.split("/"):
        raise LogUnreadable(f"its log has the file {name!r}, which is not in its folder")
    return name


@contextmanager
def checkpoint_opened(table: Folder, name: str) -> Iterator[ParquetFile]:
    """Opens one file of a checkpoint. Raises CheckpointDamaged, OSError."""
    # pyarrow's own allocator would keep 40 MB after a checkpoint of 100,000 files.
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        with reading_log(name), table.open(name) as opened, pq.ParquetFile(opened, buffer_size=1 << 20) as file:
            yield file
    except (LogUnreadable, OSError) as error:
        # pyarrow raises OSError without a number for a damaged file.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise CheckpointDamaged(str(error)) from error
    finally:
        pa.set_memory_pool(before)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The newest checkpoint of a log and the entries after it. `checkpoint` is the checkpoint's version (-1: none),
    and `versions` are the entries' versions, in order."""

    checkpoint: int
    checkpoint_files: tuple[str, ...]
    versions: tuple[int, ...]

    @property
    def newest(self) -> int:
        return self.versions[-1] if self.versions else self.checkpoint


def log_files(table: Folder, below: int | None = None) -> LogFiles:
    """Lists the newest checkpoint and the entries after it. With `below`, ignores checkpoints of this version or above,
    for example because one is damaged. Raises OSError."""
    names = table.subfolder(LOG).names
    if below is None:
        found = _log_files(names(_pointed_at(table)))
        if found.checkpoint >= 0:
            return found
    return _log_files(names(), below)


def _pointed_at(table: Folder) -> str:
    try:
        return f"{int(json.loads(table.read(LAST_CHECKPOINT))['version']):020}"
    except (FileNotFoundError, ValueError, TypeError, KeyError, RecursionError):
        return ""


def _log_files(names: Iterable[str], below: int | None = None) -> LogFiles:
    entries: list[int] = []
    checkpoints: dict[tuple[int, int, str], list[str]] = {}
    for name in names:
        if name.endswith(".json") and name[:-5].isdecimal():
            entries.append(int(name[:-5]))
        elif (found := CHECKPOINT.fullmatch(name)) is not None:
            version, kind, parts = found["version"], found["id"] or "", found["parts"] or 1
            if below is None or int(version) < below:
                checkpoints.setdefault((int(version), int(parts), kind), []).append(name)
    whole = [which for which, files in checkpoints.items() if len(files) == which[1]]
    newest = max(whole, default=(-1, 0, ""))
    files = tuple(f"{LOG}/{name}" for name in sorted(checkpoints.get(newest, ())))
    return LogFiles(newest[0], files, tuple(sorted(each for each in entries if each > newest[0])))


def write_entry(table: Folder, version: int, actions: Iterable[Mapping[str, Any]]) -> bytes | None:
    """Commits `actions` as `version`. Returns the entry's bytes, or None if another writer was first. After an
    OSError, only the log shows whether the entry exists."""
    # No escapes: delta-rs decodes those from U+100000 on as another character.
    lines = (json.dumps(action, separators=(",", ":"), ensure_ascii=False) + "\n" for action in actions)
    content = "".join(lines).encode()
    # `create` syncs, because an entry damaged by a power cut would make the table unreadable.
    return content if table.create(entry_name(version), content) else None


def committed_at(table: Folder, version: int) -> float | None:
    """Returns when a version was committed (as `FolderFile.modified`), or None if its entry was cleaned up."""
    entry = table.find(entry_name(version))
    return None if entry is None else entry.modified


def actions(table: Folder, version: int) -> list[dict[str, Any]]:
    name = entry_name(version)
    content = table.read(name)
    with reading_log(name):
        return list(parsed(content))


def parsed(content: bytes) -> Iterator[dict[str, Any]]:
    """Yields the actions of an entry. Raises ValueError if it is damaged, for example by a power cut."""
    if not content:
        raise ValueError("it is empty")
    for line in content.split(b"\n"):  # only at LF: JSON does not escape other line ends of Unicode
        if line.strip():
            yield json.loads(line.decode())
