"""The main loop of a sinker, which claims and handles messages while the `Watchdog` renews leases."""

import base64
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from kctl_agent.errors import StorageError
from kctl_agent.process.bootstrap import ProcessSettings, decoded, fitting
from kctl_agent.process.outages import Stopped, until_it_works
from kctl_agent.process.stop import StopRequest
from kctl_agent.rpc.messages import number_of
from kctl_agent.rpc.operations import Inbox, Outcome, outcome_of
from kctl_agent.schemas.formats import Formats
from kctl_agent.sinker.handler import FailureLog, Handler, HandlerError, described
from kctl_agent.sinker.in_flight import Ack, Decision, InFlightClaim, Part, cut, decide
from kctl_agent.sinker.stats import SinkerProcessStats
from kctl_agent.sinker.watchdog import Watchdog
from kctl_agent.storage.base import Storage
from kctl_agent.storage.block import Block
from kctl_agent.storage.causes import RETURNED_FALSE
from kctl_agent.storage.claim import Claim

FORMAT = 3  # version of the file: 1 was a pickle, 2 did not preallocate notes
BEGUN, DONE, FAILED = b"?", b"+", b"-"
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
DIED = "the sinker died while it handled only this message"
UNKNOWN = "the handler failed with only this message, and the sinker died before it stored the reason"


class Journal:
    """A file with the progress of a claim whose messages are handled one by one. If the sinker dies, its successor sees
    which messages are done, and which message may have killed the sinker.

    The first line is the claim as JSON. Two bytes per message follow: the sinker writes one before it calls the
    handler, and one for the result.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None

    def open(self, claim: Claim) -> None:
        """Writes the claim. Raises OSError, usually because the disk is full."""
        self.clear()
        line = _line(claim)
        self._file = open(os.open(self._path, _WRITE, 0o600), "wb", buffering=0)  # noqa: SIM115 - until `clear`
        try:  # the bytes of `begin` and `end` can then be written even if the disk is full
            os.posix_fallocate(self._file.fileno(), 0, len(line) + 2 * len(claim.messages))
        except OSError as error:
            error.filename = str(self._path)
            raise
        self._file.write(line)

    def begin(self) -> None:
        self._note(BEGUN)

    def end(self, ack: bool) -> None:
        self._note(DONE if ack else FAILED)

    def clear(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._path.unlink(missing_ok=True)

    def left_behind(self) -> InFlightClaim | None:
        try:
            line, _, notes = _own_bytes(self._path).rstrip(b"\0").partition(b"\n")
            return _restored(_claim(json.loads(line)), notes) if notes else None
        except FileNotFoundError:
            return None
        except Exception:  # from another release, or truncated by a full disk: its lease is released anyway
            log.warning("%s cannot be read; its messages will be handled again", self._path.name)
            return None

    def _note(self, what: bytes) -> None:
        assert self._file is not None
        self._file.write(what)


def _own_bytes(path: Path) -> bytes:
    with open(os.open(path, _READ), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise PermissionError(f"{path} does not belong to this user")
        return file.read()


def _line(claim: Claim) -> bytes:
    block = asdict(claim.block) | {"body": base64.b64encode(claim.block.body).decode("ascii")}
    fields = {name: getattr(claim, name) for name in ("id", "token", "owner", "tries")}
    return json.dumps({"format": FORMAT, **fields, "block": block}).encode("ascii") + b"\n"


def _claim(given: dict[str, Any]) -> Claim:
    if given.pop("format") != FORMAT:
        raise ValueError("another format")
    body = base64.b64decode(given["block"]["body"], validate=True)
    block = Block(**{**given.pop("block"), "body": body})
    return Claim(**given, block=block, messages=block.messages(given["tries"]))


def _restored(claim: Claim, notes: bytes) -> InFlightClaim:
    claimed = InFlightClaim.of(claim)
    for i, ended in enumerate(notes[1::2]):
        claimed.acks[i] = ended == DONE[0]
        if not claimed.acks[i]:
            claimed.errors[i] = UNKNOWN
    if len(notes) % 2:
        culprit = len(notes) // 2
        claimed.acks[culprit] = False
        claimed.errors[culprit] = DIED
    return claimed


log = logging.getLogger(__name__)

IDLE_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2)
MAX_RETRY_SECONDS = 3600.0
GIVE_UP_AFTER = 10
"""After so many messages in a row failed alone, the rest of the block waits, except on the last try."""
_OPERATIONS = {"pause": lambda _: Outcome("done", "paused partitions are known")}


@dataclass(frozen=True, slots=True)
class SinkerSettings(ProcessSettings):
    import_dir: Path  # searched first for the handler's module: the folder of kctl.toml
    handler: str
    batch_size: int
    batch_wait_seconds: float
    lease_seconds: float
    max_tries: int
    retry_backoff_seconds: float
    handler_timeout_seconds: float
    ordered: bool
    storage: dict[str, Any]
    owner: str
    """Owns the claims. Two processes with one owner never run at the same time."""
    formats: Formats = Formats()  # noqa: RUF009 - it is immutable
    batch_bytes: int = 16 << 20  # the most bytes to claim, as stored; at least one block is claimed


def parse(line: str) -> SinkerSettings:
    with fitting("sinker"):
        given = decoded(line)
        formats = Formats.of(given.get("formats"))
        return SinkerSettings(**{**given, "import_dir": Path(given["import_dir"]), "formats": formats})


@dataclass(eq=False)
class Sinker:
    _settings: SinkerSettings
    _storage: Storage
    _handler: Handler
    _stats: SinkerProcessStats
    _stop: StopRequest
    _guard: Watchdog
    _inbox: Inbox

    def __post_init__(self) -> None:
        self._journal = Journal(self._settings.scratch_dir / "in-flight")
        self._failures = FailureLog(log)
        self._in_flight: list[InFlightClaim] = []

    def run(self) -> None:
        """Runs until a stop request. Then releases untouched claims and settles the others. Main thread only."""
        with suppress(Stopped):
            self._tidy_up()
            self._handle_all()
        self._stats.enter("stopping")
        self._give_back()

    def _handle_all(self) -> None:
        polls = 0
        while not self._stop.is_asked:
            for operation in self._inbox.take():
                self._inbox.report(operation.id, outcome_of(operation, _OPERATIONS))
            if self._inbox.paused:
                self._stats.enter("paused")
                self._stop.wait(IDLE_SECONDS[-1])
                continue
            self._claim()
            if self._in_flight:
                polls = 0
                self._stats.enter("running")
                started = time.monotonic()
                self._work()
                self._stats.worked(time.monotonic() - started)
            else:
                if polls or self._stats.state == "paused":
                    self._stats.enter("idle")
                self._stop.wait(IDLE_SECONDS[min(polls, len(IDLE_SECONDS) - 1)])
                polls += 1

    def settle_in_flight(self, call: Sequence[Part]) -> str:
        """After a time-out, releases untouched claims and settles others. Returns the error. Watchdog thread only."""
        messages = [message for part in call for message in part.claimed.claim.messages[part.begin : part.end]]
        error = self._handler.hangs(messages, threading.main_thread().ident)
        self._failures.error(error)
        for part in call:
            part.failed(error.text, is_alone=len(messages) == 1)
        failures = [str(error)] * len(messages)
        self._stats.called(self._settings.handler_timeout_seconds, len(messages), failures, str(error))
        for claimed in list(self._in_flight):
            if not claimed.is_untouched:
                self._settle(claimed)
        self._give_back()
        self._journal.clear()
        return str(error)

    def _tidy_up(self) -> None:
        left = self._journal.left_behind()
        if left is not None:
            self._in_flight = [left]
            self._settle(left)
        self._journal.clear()
        count = until_it_works(
            lambda: self._storage.release(self._settings.owner, count_try=True), self._stats, self._stop
        )
        if count:
            log.warning("a sinker of this name died with %s in flight; retrying them", number_of(count, "message"))

    def _claim(self) -> None:
        wanted, room = self._settings.batch_size, self._settings.batch_bytes
        deadline = float("inf")
        while wanted > 0 and room > 0 and not self._stop.is_asked:
            found = self._claimed(wanted, room)
            wanted -= sum(len(claimed.acks) for claimed in found)
            room -= sum(len(claimed.claim.block.body) for claimed in found)
            if self._in_flight and deadline == float("inf"):
                deadline = time.monotonic() + self._settings.batch_wait_seconds
            if not self._in_flight or time.monotonic() >= deadline:
                break
            if not found:
                self._stop.wait(min(IDLE_SECONDS[1], deadline - time.monotonic()))
        self._stats.in_flight = sum(len(claimed.acks) for claimed in self._in_flight)

    def _claimed(self, limit: int, limit_bytes: int) -> list[InFlightClaim]:
        settings = self._settings
        more: dict[str, Any] = {"ordered": settings.ordered, "limit_bytes": limit_bytes}
        claims = until_it_works(
            lambda: self._storage.claim(settings.owner, limit, settings.lease_seconds, **more), self._stats, self._stop
        )
        renew_at = time.monotonic() + self._guard.renew_seconds
        found = [InFlightClaim.of(claim, renew_at) for claim in claims]
        for claimed in found:
            self._in_flight.append(claimed)
            self._guard.hold(claimed)
        return found

    def _work(self) -> None:
        for parts in cut(
            [claimed for claimed in self._in_flight if not claimed.comes_again], self._settings.batch_size
        ):
            self._guard.renew_due()
            call = [part for part in parts if self._is_due(part.claimed)]
            if call:
                self._call(call)
            for part in parts:
                claimed = part.claimed
                if part.end == len(claimed.acks) and (claimed.is_lost or not claimed.is_untouched):
                    self._settle(claimed)
        for claimed in [claimed for claimed in self._in_flight if claimed.comes_again]:
            if self._stop.is_asked:
                break
            if not claimed.is_lost:
                self._handle_alone(claimed)
            if claimed.is_lost or not claimed.is_untouched:
                self._settle(claimed)
            self._journal.clear()

    def _is_due(self, claimed: InFlightClaim) -> bool:
        if claimed.is_lost or (self._settings.ordered and claimed.has_failed):
            return False
        # A begun claim is handled to its end even after a stop request: a retry would handle each message alone.
        return not (self._stop.is_asked and claimed.is_untouched)

    def _handle_alone(self, claimed: InFlightClaim) -> None:
        with suppress(Stopped):
            until_it_works(lambda: self._journal.open(claimed.claim), self._stats, self._stop)
        is_last = claimed.claim.tries + 1 >= self._settings.max_tries
        in_a_row = 0
        for i in range(len(claimed.acks)):
            self._guard.renew_due()
            if self._stop.is_asked or claimed.is_lost:
                return
            self._journal.begin()
            self._call([Part(claimed, i, i + 1)])
            ack = claimed.acks[i] is True
            self._journal.end(ack)
            in_a_row = 0 if ack else in_a_row + 1
            if not is_last and (in_a_row >= GIVE_UP_AFTER or (self._settings.ordered and not ack)):
                return

    def _call(self, call: Sequence[Part]) -> None:
        messages = [message for part in call for message in part.claimed.claim.messages[part.begin : part.end]]
        count, started = len(messages), time.monotonic()
        error: HandlerError | None = None
        self._stats.calling()

        def handled() -> list[Ack]:
            with self._guard.calling(call):
                return self._handler(messages)

        try:
            acks = until_it_works(handled, self._stats, self._stop)
        except HandlerError as failure:
            error = failure
        seconds = time.monotonic() - started
        if error is None:
            self._stats.called(seconds, count, [ack or RETURNED_FALSE for ack in acks if ack is not True], None)
            for part in call:
                part.acknowledged(acks[: part.count])
                acks = acks[part.count :]
        else:
            self._stats.called(seconds, count, [str(error)] * count, str(error))
            self._failures.error(error)
            for part in call:
                part.failed(error.text, is_alone=count == 1)

    def _settle(self, claimed: InFlightClaim) -> None:
        self._guard.drop(claimed)
        decision = decide(claimed, self._settings.max_tries, self._settings.ordered)
        try:
            is_lost = not until_it_works(lambda: self._written(claimed, decision), self._stats, self._stop)
        except Stopped:
            log.error("not settled, so handled again: %s", described(claimed.claim.messages))
            is_lost = True
        self._in_flight.remove(claimed)
        self._stats.in_flight = sum(len(each.acks) for each in self._in_flight)
        if is_lost:
            self._stats.settled(lost=len(claimed.acks))
            if not claimed.is_lost:
                self.report_lost(claimed)
        else:
            self._stats.settled(handled=decision.handled, again=decision.again, dead=len(decision.dead_lettered))

    def _written(self, claimed: InFlightClaim, decision: Decision) -> bool:
        claim = claimed.claim
        wait = min(self._settings.retry_backoff_seconds * 2.0 ** min(claim.tries, 30), MAX_RETRY_SECONDS)
        settled = self._storage.settle(
            claim, decision.acks, dead=decision.dead_lettered, retry_seconds=wait if decision.is_failure else 0.0
        )
        return not settled.is_lost

    def report_lost(self, claimed: InFlightClaim) -> None:
        """Reports a lost lease as an event. The watchdog's thread may call it too."""
        claim, messages = claimed.claim, claimed.claim.messages
        text = f"the lease of {described(messages)} was lost while in flight; the messages are handled again"
        self._stats.happened(
            "lease_lost", text, (claim.topic, claim.partition), (messages[0].offset, messages[-1].offset)
        )

    def _give_back(self) -> None:
        for claimed in self._in_flight:
            self._guard.drop(claimed)
        try:
            count = self._storage.release(self._settings.owner)
        except StorageError as error:
            log.error("not released, so leased until the lease expires: %s", error)
        else:
            if count:
                log.info("released %s", number_of(count, "message"))
        self._in_flight = []
        self._stats.in_flight = 0
