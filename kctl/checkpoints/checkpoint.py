"""Reads a checkpoint in a folder or a bucket: what its query has processed, and how Spark would react to a restart.

Batches up to the highest number in `commits/` count as processed. Spark's reactions were tested with Spark 3.5 and 4.2
(tests/acceptance/test_checkpoint_faults.py).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import unquote, urlsplit

from kctl.checkpoints import entries
from kctl.checkpoints.entries import BadEntry, Offsets, Planned
from kctl.config.clusters import place_hint
from kctl.errors import CheckpointUnreadable, UsageError
from kctl.ownership import open_regular
from kctl_agent.rpc.messages import number_of

if TYPE_CHECKING:
    from kctl_agent.storage.lake.folder.base import Folder

_T = TypeVar("_T")
_STATE = re.compile(r"(?P<store>\d+/\d+(/.+)?)/(?P<version>\d+)(_[^./]+)?\.(delta|snapshot|changelog|zip)")
_ENTRY_BYTES = 4 << 20  # the largest file that is read; 100,000 partitions take about 2 MiB
_BUCKETS = ("s3", "s3a", "s3n")
_SETTING = "storage.credentials_file, or "
"""A part of messages that applies only to a fleet's table: a checkpoint uses AWS's own variables, files and roles."""


class Finding(NamedTuple):
    """A fact that matters for a restart of the query. `starts` is whether the query would start, or None if unknown."""

    starts: bool | None
    text: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint at one moment. Times are in seconds since 1970."""

    uri: str
    query_id: str | None = None
    planned: int | None = None
    planned_at: float | None = None
    committed: int | None = None
    committed_at: float | None = None
    processed_at: float | None = None
    """When the newest committed batch was planned; all its messages existed then."""
    sources: tuple[Offsets | None, ...] = ()
    """Next offsets after the newest committed batch; before the first batch, those where the query began."""
    repeated: Offsets | None = None  # the end of the batch that is planned but not committed
    watermark_ms: int = 0
    conf: Mapping[str, str] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    stamp: str | None = None
    """The stamp of the newest file in `offsets/`, which changes with each write."""

    @property
    def offsets(self) -> Offsets:
        return entries.merged(self.sources)

    @property
    def would_start(self) -> bool | None:
        return starts(self.findings)


def starts(findings: tuple[Finding, ...]) -> bool | None:
    found = {each.starts for each in findings}
    return False if False in found else None if None in found else True


def read(folder: Folder, *, with_state: bool = True, last: Checkpoint | None = None) -> Checkpoint:
    """Reads a checkpoint, even while its query runs. Raises CheckpointUnreadable.

    Lists two folders and reads four files. `with_state` also checks `state/`, which may be large. Pass the previous
    result as `last`. If `last` has no findings and the checkpoint has not changed, returns `last` and reads no files.
    """
    with reading(folder):
        try:
            return _Reader(folder).read(last, with_state=with_state)
        except FileNotFoundError:  # the query has purged an entry meanwhile
            return _Reader(folder).read(last, with_state=with_state)


class _Reader:
    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        # In this order, because a batch is planned before it is committed.
        self._commits = self._numbers("commits")
        self._offsets = self._numbers("offsets")
        self._findings: list[Finding] = []
        self._entries: dict[int, Planned | None] = {}
        self._stamps: dict[str, str] = {}

    def read(self, last: Checkpoint | None, *, with_state: bool) -> Checkpoint:
        planned, committed = max(self._offsets, default=None), max(self._commits, default=None)
        entry = f"offsets/{planned}"
        if last is not None and last.stamp and not last.findings:
            file = self._folder.find(entry) if (last.planned, last.committed) == (planned, committed) else None
            if file is not None and file.stamp == last.stamp:
                return last
        query_id = self._query_id()
        newest = self._planned(planned)
        if planned is not None and newest is not None:
            newest = self._whole(planned, newest, is_done=committed == planned)
        done = self._done(planned, committed, newest)
        if with_state and planned is not None:
            self._check_state(planned if committed != planned else planned + 1, newest)
        commit = None if committed is None else self._folder.find(f"commits/{committed}")
        return Checkpoint(
            self._folder.uri,
            query_id,
            planned,
            newest.planned_at if newest else None,
            committed,
            commit.modified if commit else None,
            done.planned_at if done else None,
            () if done is None else done.sources,
            entries.merged(newest.sources) if newest is not None and committed != planned else None,
            0 if newest is None else newest.watermark_ms,
            newest.conf if newest else {},
            tuple(self._findings),
            self._stamps.get(entry),
        )

    def _numbers(self, name: str) -> set[int]:
        names = self._folder.subfolder(name).names()
        return {int(each) for each in names if each.isascii() and each.isdecimal()}

    def _found(self, starts: bool | None, text: str) -> None:
        self._findings.append(Finding(starts, text))

    def _parsed(self, name: str, parse: Callable[[str], _T]) -> _T | None:
        try:
            content, self._stamps[name] = self._folder.read_stamped(name, _ENTRY_BYTES)
            return parse(content.decode())
        except (BadEntry, UnicodeDecodeError) as error:
            reason = str(error) if isinstance(error, BadEntry) else "is not UTF-8"
            self._found(None if "does not know" in reason else False, f"{name} {reason}")
            return None

    def _query_id(self) -> str | None:
        try:
            return self._parsed("metadata", entries.query_id)
        except FileNotFoundError:
            if not self._offsets and not self._commits:
                raise CheckpointUnreadable(
                    f"{self._folder} is missing, or is not a checkpoint: it has no metadata, offsets/ or commits/; "
                    "name the query's checkpointLocation"
                ) from None
            self._found(None, "metadata is missing: Spark 4.2 does not start, 3.4 to 4.1 start with a new query id")
            return None

    def _planned(self, number: int | None) -> Planned | None:
        if number is None:
            return None
        if number not in self._entries:
            self._entries[number] = self._parsed(f"offsets/{number}", entries.planned)
        return self._entries[number]

    def _done(self, planned: int | None, committed: int | None, newest: Planned | None) -> Planned | None:
        if committed is None:
            if planned:
                self._found(True, f"commits/ is empty: Spark takes batch {planned - 1} for done, and repeats {planned}")
                return None
            return Planned(self._initial())  # before the first commit: where the query began
        if self._parsed(f"commits/{committed}", entries.commit) is None:
            return None
        if planned is None or committed > planned:
            self._found(
                False,
                f"commits/{committed} is newer than all of offsets/, as when one of them was restored from an older "
                "copy: Spark fails with CONCURRENT_STREAM_LOG_UPDATE, or by an assertion",
            )
            return None
        if committed < planned - 1:
            self._found(
                True,
                f"commits/ ends at batch {committed} and offsets/ at {planned}: Spark takes those between for done "
                f"and repeats batch {planned} alone; kctl counts what is committed",
            )
        if committed == planned:
            return newest
        if committed not in self._offsets:
            self._found(True, f"offsets/{committed} is missing: what the newest committed batch has read is not known")
            return None
        return self._planned(committed)

    def _initial(self) -> tuple[Offsets | None, ...]:
        sources: list[Offsets | None] = []
        with suppress(FileNotFoundError):
            while True:
                sources.append(self._parsed(f"sources/{len(sources)}/0", entries.initial))
        return tuple(sources)

    def _whole(self, planned: int, newest: Planned, *, is_done: bool) -> Planned | None:
        count, before = len(newest.sources), None
        if planned and planned - 1 not in self._offsets:
            is_async = planned - 1 not in self._commits
            self._found(
                None if is_async else False,
                f"offsets/{planned - 1} is missing: Spark does not start (batch {planned - 1} doesn't exist)"
                + (", unless the query has asynchronous progress tracking, which leaves such gaps" if is_async else ""),
            )
        elif planned:
            before = self._planned(planned - 1)  # where the newest batch starts
        has_more = before is None and self._folder.find(f"sources/{count}/0") is not None
        if has_more or (before is not None and len(before.sources) != count):
            others = "the query more" if before is None else f"the batch before {len(before.sources)}"
            self._found(False, f"offsets/{planned} has {number_of(count, 'source')}, {others}")
            return None
        ends, starts = entries.merged(newest.sources), entries.merged(before.sources if before else ())
        back = [(key, was) for key, was in sorted(starts.items()) if ends.get(key, was) < was]
        if back:
            (topic, partition), was = back[0]
            self._found(
                is_done,
                f"batch {planned} ends before batch {planned - 1} does ({topic}-{partition}: {ends[topic, partition]} "
                f"after {was}), as when two drivers write one checkpoint: Spark "
                + ("reads those messages again" if is_done else "fails, unless failOnDataLoss is false"),
            )
        return newest

    def _check_state(self, version: int, newest: Planned | None) -> None:
        versions: defaultdict[str, int] = defaultdict(int)
        for file in self._folder.subfolder("state").files():
            found = _STATE.fullmatch(file.name)
            if found is not None:
                versions[found["store"]] = max(versions[found["store"]], int(found["version"]))
        if not versions and version:
            has_watermark = newest is not None and newest.watermark_ms > 0
            text = "there is no state/: a query without state starts; one with state (aggregates, joins, …) does not"
            self._found(None if has_watermark else True, text)
        for store, newest_version in sorted(versions.items()):
            if newest_version < version:  # batch N reads version N of each state store
                self._found(
                    False, f"state/{store} ends at version {newest_version}, and the next batch reads {version}"
                )
                return


def place(uri: str) -> Folder:
    """Returns the folder for a path, `file://…`, or `s3://BUCKET/PREFIX`. Raises UsageError."""
    found = urlsplit(uri)
    if found.scheme in ("", "file"):
        from kctl_agent.storage.lake.folder.local import LocalFolder

        path = Path(unquote(found.path) if found.scheme else uri).absolute()
        # Its owner could place links to our files, or a FIFO.
        return LocalFolder(path, opener=lambda file, flags: open_regular(Path(file), flags))
    if found.scheme not in _BUCKETS or not found.netloc or not found.path.strip("/"):
        raise UsageError(f"{uri}: {place_hint(uri)}")
    try:
        from kctl_agent.storage.lake.folder.s3 import S3Folder
    except ImportError:
        raise UsageError(f"{uri}: S3 needs the package obstore: pip install obstore") from None
    storage = {"uri": f"s3://{found.netloc}{found.path}", "endpoint": None, "region": None, "credentials_file": None}
    return S3Folder.of(storage)


def store_of(uri: str) -> str:
    """Returns the bucket or mount point of a checkpoint without accessing its disk, which may hang."""
    found = urlsplit(uri)
    if found.scheme in _BUCKETS:
        return found.netloc
    path = unquote(found.path) if found.scheme else uri
    mounts = [line.split()[4].rstrip("/") for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return max((each for each in mounts if path == each or path.startswith(f"{each}/")), key=len, default="/")


@contextmanager
def reading(folder: Folder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename or folder
        why = (error.strerror or str(error)).replace(_SETTING, "")
        raise CheckpointUnreadable(f"{where} cannot be read: {why}") from error
