"""The operator's pauses, kept in a file so that they survive restarts of workers and masters."""

import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kctl.errors import OperationRefused
from kctl_agent.paths import ENGINE_NAME
from kctl_agent.replies.workers import Scope
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.sync import sync_file

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pause:
    worker: str | None
    topic: str | None
    partition: int | None
    by: str
    since: float

    @property
    def what(self) -> str:
        if self.worker is not None:
            return self.worker
        if self.topic is None:
            return "everything"
        return self.topic if self.partition is None else f"{self.topic}-{self.partition}"

    @property
    def key(self) -> tuple[str | None, str | None, int | None]:
        return (self.worker, self.topic, self.partition)

    def scope(self) -> JsonObject:
        return {"topic": self.topic, "partition": self.partition, "by": self.by, "since": self.since}


class Pauses:
    """All pauses of a fleet. Belongs to one event loop."""

    def __init__(self, path: Path) -> None:
        """Reads the pauses from the file. If the file is unreadable, everything is paused until `kctl resume`."""
        self._path = path
        self.draining: dict[str, JsonObject] = {}
        """Scopes of processes that are being drained; not kept in the file."""
        self._pauses: dict[tuple[str | None, str | None, int | None], Pause] = {}
        try:
            self._pauses = {pause.key: pause for pause in msgspec.json.decode(path.read_bytes(), type=list[Pause])}
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:
            log.error("action=pauses_unreadable path=%s: %s; everything is paused", path, error)
            everything = Pause(None, None, None, f"kctl, because {path} cannot be read", time.time())
            self._pauses = {everything.key: everything}
        for pause in self._pauses.values():
            log.warning("action=paused what=%s by=%s: it was paused before the master started", pause.what, pause.by)

    def all(self) -> list[Pause]:
        return list(self._pauses.values())

    def scopes(self, name: str) -> list[JsonObject]:
        """Returns the pauses that apply to a process. A topic's pause does not apply to sinkers. The engine has
        no pauses, because it does not read."""
        if name == ENGINE_NAME:
            return []
        is_sinker = name.startswith("sinker-")
        own = [
            pause.scope()
            for pause in self._pauses.values()
            if pause.worker in (None, name) and not (is_sinker and pause.topic is not None)
        ]
        return [*own, self.draining[name]] if name in self.draining else own

    def rows(self, name: str) -> tuple[Scope, ...]:
        return tuple(Scope(**scope) for scope in self.scopes(name))

    def at_start(self, name: str) -> JsonObject:
        return {"paused": self.scopes(name)}

    def add(self, worker: str | None, topic: str | None, partition: int | None, by: str) -> Pause:
        """Stores a pause, if the target has none, and returns it. Raises OperationRefused if the file is unwritable."""
        pause = Pause(worker, topic, partition, by, time.time())
        if pause.key not in self._pauses:
            self.replace([*self._pauses.values(), pause])
        return self._pauses[pause.key]

    def remove(self, worker: str | None, topic: str | None, partition: int | None) -> list[Pause]:
        """Ends the pauses of a worker, of a topic and its partitions, or of a partition. By default, ends all pauses.
        Raises OperationRefused if a wider pause (of the topic or of everything) would remain, if no pause matches, or
        if the file cannot be written."""
        ended = [
            pause
            for pause in self._pauses.values()
            if (worker is None or pause.worker == worker)
            and (topic is None or pause.topic == topic)
            and (partition is None or pause.partition == partition)
        ]
        left = [pause for pause in self._pauses.values() if pause not in ended]
        for wider in left:
            is_all = wider.key == (None, None, None)
            if is_all or (partition is not None and (wider.topic, wider.partition) == (topic, None)):
                raise OperationRefused(f"{wider.what} is paused by {wider.by}: resume that instead")
        if not ended:
            if (worker, topic, partition) == (None, None, None):
                raise OperationRefused("nothing is paused")
            what = Pause(worker, topic, partition, "", 0.0).what
            raise OperationRefused(f"{what} is not paused; `kctl status` shows what is")
        self.replace(left)
        return ended

    def replace(self, pauses: Iterable[Pause]) -> None:
        by_key = {pause.key: pause for pause in pauses}
        temporary = self._path.with_suffix(".new")
        try:
            if by_key:
                temporary.write_bytes(msgspec.json.encode([*by_key.values()]))
                sync_file(temporary)
                temporary.replace(self._path)
            else:
                self._path.unlink(missing_ok=True)
            sync_file(self._path.parent)
        except OSError as error:
            raise OperationRefused(f"the pauses cannot be kept in {self._path}: {error.strerror}") from None
        self._pauses = by_key
