"""Runs operations, records their state, and prevents conflicts between them.

The audit log has a line for the start and a line for the end of each operation. If the master is killed, the log shows
which operations were running.
"""

import asyncio
import itertools
import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from kctl import audit
from kctl.daemon_threads import on_disk
from kctl.errors import KctlError, NoSuchOperation, OperationRefused, OperationUnknown
from kctl.master.operations.base import Caller, Operation, OperationState, Report
from kctl.master.operations.context import Context
from kctl.master.operations.fleet_operation import ALL_HOSTS, Done, FleetOperation, with_host
from kctl.master.operations.on_hosts import OnHosts, check_host
from kctl.ownership import open_regular
from kctl.rpc.fan_out import Failed
from kctl_agent.errors import AgentError, BadParams, UnknownMethod
from kctl_agent.rpc.messages import printable_name
from kctl_agent.rpc.wire import JsonObject

log = logging.getLogger(__name__)

_KEPT = 500
Attended: TypeAlias = Callable[..., None]
"""Takes the text and the state of an operation that another part executes."""
_SHORT_SECONDS = 0.2  # a long operation that ends within this time is answered with its end


@dataclass(eq=False, repr=False)
class OperationLog:
    """Runs each operation as a task with a deadline. Belongs to one event loop."""

    types: Mapping[str, type[FleetOperation]]
    _context: Context
    _audit_path: Path | None  # gets the audit lines as JSON; the log gets them too
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(name, outcome) -> count; outcomes are `done`, `failed`, `unknown`, `refused`."""

    def __post_init__(self) -> None:
        self.listeners: list[Callable[[Operation], None]] = []
        self._operations: dict[str, Operation] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stops: dict[str, Callable[[], object]] = {}
        self._given_up: dict[str, str] = {}  # operation -> reason, until it has ended
        self._ids = itertools.count(1)
        self._is_closed = False

    async def report_interrupted(self) -> None:
        try:
            found = [] if self._audit_path is None else interrupted(self._audit_path, time.time())
        except OSError as error:
            log.error("action=audit_failed path=%s: %s", self._audit_path, error.strerror)
            return
        for operation in found:
            self._operations[operation.id] = operation
            await self._write_down(operation)
            log.warning("action=operation_interrupted id=%s operation=%s", operation.id, operation.words)
        self._ids = itertools.count(max((int(each.id) for each in found), default=0) + 1)

    async def submit(self, name: str, params: JsonObject, caller: Caller, wait_seconds: float) -> Operation:
        """Starts an operation, and returns it when it ends or after `wait_seconds`. If it `is_long`, waits 0.2 s at
        most. Raises UnknownMethod, BadParams, or OperationRefused, for example if a running operation conflicts."""
        kind = self.types.get(name)
        if kind is None:
            raise UnknownMethod(
                f"there is no operation {printable_name(name)}; there are {', '.join(sorted(self.types))}"
            )
        try:
            operation, task = await self._begun(kind, params, caller)
        except (OperationRefused, BadParams) as error:
            self.counts[name, "refused"] += 1
            log.warning("action=operation_refused operation=%s by=%s via=%s: %s", name, caller.name, caller.via, error)
            raise
        is_long = kind.is_long and not params.get("dry_run")
        await asyncio.wait([task], timeout=min(wait_seconds, _SHORT_SECONDS) if is_long else wait_seconds)
        return self._operations[operation.id]

    def find(self, id_: str) -> Operation:
        operation = self._operations.get(id_)
        if operation is None:
            raise NoSuchOperation(
                f"there is no operation {printable_name(id_)}; `kctl operations` lists those that are known"
            )
        return operation

    def all(self) -> list[Operation]:
        return list(reversed(self._operations.values()))

    async def listed(self, seconds: float, *, is_local: bool = False) -> tuple[list[JsonObject], list[Failed]]:
        """Returns operations, newest first, and the hosts that did not answer. Asks all hosts unless `is_local`."""
        rows = [operation.to_row() for operation in self.all()]
        if is_local or (hosts := self._context.hosts) is None:
            return rows, []
        others, failed = await hosts.operations(seconds)
        every = [*({**row, "host": hosts.me.name} for row in rows), *others]
        return sorted(every, key=lambda row: str(row.get("started_at")), reverse=True), failed

    def attend(self, name: str, params: JsonObject, token: str, stop: Callable[[], object]) -> Attended:
        """Adds an operation that other code runs. Returns a function that records its progress and end. Cancelling the
        operation calls `stop`."""
        caller = Caller(uid=None, via="http", token=token)
        operation = self._entered(name, params, caller, math.inf, frozenset())
        self._stops[operation.id] = stop

        def report(text: str, state: OperationState = "running") -> None:
            if state == "running":
                self._operations[operation.id] = replace(self._operations[operation.id], text=text)
                return
            del self._stops[operation.id]
            self._end(self._ended(operation.id, state, self._why(operation.id, text)))
            self._given_up.pop(operation.id, None)

        return report

    def cancel(self, id_: str, caller: Caller) -> Operation:
        """Cancels an operation without waiting for its end. If changes cannot be undone, the operation's final text
        names them. Raises NoSuchOperation, OperationRefused."""
        operation = self.find(id_)
        if operation.state != "running":
            raise OperationRefused(f"operation {id_} has ended already")
        self._give_up(id_, f"cancelled by {caller.name}")
        return operation

    async def close(self) -> None:
        self._is_closed = True
        for id_ in self._tasks:
            self._give_up(id_, "the master stops")
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _begun(
        self, kind: type[FleetOperation], params: JsonObject, caller: Caller
    ) -> tuple[Operation, asyncio.Task[None]]:
        if self._is_closed:
            raise OperationRefused("the master is stopping and accepts no more operations")
        params = with_host(params)
        if params.get(kind.shared_by_hosts) is not None and self._context.hosts is not None:
            params = {"host": ALL_HOSTS, **params}
        given = kind.given(params)
        host = self._other_host(kind, params)
        touches = frozenset[str]() if host is None else frozenset({f"host {host}"})
        if host is None or self._leads(host):
            touches |= given.touches(self._context)
        running = (self._operations[id_] for id_ in self._tasks)
        other = next((each for each in running if touches & each.touches), None)
        if other is not None:
            raise OperationRefused(
                f"operation {other.id} ({other.words}, by {other.by}) is in progress: wait for it, or `kctl operation "
                f"{other.id} --cancel`"
            )
        shown = {key: value for key, value in params.items() if key != "deadline_seconds"}
        deadline_seconds = float(params.get("deadline_seconds", given.deadline_seconds(self._context)))
        operation = self._entered(kind.rpc, shown, caller, deadline_seconds, touches)
        written = asyncio.create_task(self._write_down(operation))
        task = self._tasks[operation.id] = asyncio.create_task(
            self._carry(given, host, operation, caller, written), name=f"operation {operation.id}"
        )
        await asyncio.wait([written])
        return operation, task

    def _entered(
        self, name: str, params: JsonObject, caller: Caller, deadline_seconds: float, touches: frozenset[str]
    ) -> Operation:
        operation = Operation(
            id=str(next(self._ids)),
            name=name,
            params=params,
            by=caller.name,
            uid=caller.uid,
            via=caller.via,
            started_at=time.time(),
            deadline_seconds=deadline_seconds,
            touches=touches,
        )
        self._operations[operation.id] = operation
        self._forget_old()
        for listener in self.listeners:
            listener(operation)
        return operation

    def _other_host(self, kind: type[FleetOperation], params: JsonObject) -> str | None:
        host: str | None = params.get("host")
        if host is None:
            return None
        hosts = self._context.hosts
        check_host(hosts, host, kind)
        return None if hosts is not None and host == hosts.me.name else host

    def _leads(self, host: str) -> bool:
        hosts = self._context.hosts
        return host == ALL_HOSTS and hosts is not None and hosts.leader == hosts.me.name

    async def _carried_out(
        self, given: FleetOperation, host: str | None, operation: Operation, caller: Caller, report: Report
    ) -> Done:
        if host is None:
            return await given.carry_out(self._context, caller, report)
        params = {name: value for name, value in operation.params.items() if name != "host"}
        return await OnHosts(caller, given, self._context, report).carry_out(host, params)

    async def _carry(
        self, given: FleetOperation, host: str | None, operation: Operation, caller: Caller, written: asyncio.Task[None]
    ) -> None:
        def write(text: str) -> None:
            self._operations[operation.id] = replace(self._operations[operation.id], text=text)

        def expire() -> None:
            so_far = self._operations[operation.id].text or "no progress"
            self._give_up(operation.id, f"not finished within {operation.deadline_seconds:g} s; {so_far}")

        expiry = asyncio.get_running_loop().call_later(operation.deadline_seconds, expire)
        report = Report(write, time.monotonic() + operation.deadline_seconds)
        state: OperationState = "failed"
        result: JsonObject | None = None
        try:
            await asyncio.wait([written])
            text, result = await self._carried_out(given, host, operation, caller, report)
            state = "done"
        except asyncio.CancelledError:
            text = self._why(operation.id, "")
        except (KctlError, AgentError) as error:
            text = self._why(operation.id, str(error))
            if isinstance(error, OperationUnknown) and given.changes:
                state, text = "unknown", f"it may still happen: {text}"
        except Exception:
            log.exception("action=operation_failed id=%s operation=%s", operation.id, operation.name)
            text = "a defect in kctl; the master's log has its traceback"
        expiry.cancel()
        self._given_up.setdefault(operation.id, "")  # nothing interrupts it any more
        ended = self._ended(operation.id, state, text, result)
        await self._write_down(ended)
        self._end(ended)
        del self._given_up[operation.id], self._tasks[operation.id]

    def _give_up(self, id_: str, why: str) -> None:
        # A second stop must not interrupt the reverting, which may take a while.
        if id_ not in self._given_up:
            self._given_up[id_] = why
            stop = self._stops.get(id_) or self._tasks[id_].cancel
            stop()

    def _why(self, id_: str, error: str) -> str:
        return "; ".join(filter(None, (self._given_up.get(id_), error))) or "cancelled"

    def _ended(self, id_: str, state: OperationState, text: str, result: JsonObject | None = None) -> Operation:
        return replace(self._operations[id_], state=state, text=text, result=result or {}, ended_at=time.time())

    def _end(self, operation: Operation) -> None:
        self._operations[operation.id] = operation
        self.counts[operation.name, operation.state] += 1
        log.info(
            "action=operation id=%s by=%s uid=%s via=%s seconds=%.1f outcome=%s operation=%s: %s",
            operation.id,
            operation.by,
            operation.uid,
            operation.via,
            (operation.ended_at or 0) - operation.started_at,
            operation.state,
            json.dumps(operation.words),
            operation.text,
        )
        for listener in self.listeners:
            listener(operation)

    async def _write_down(self, operation: Operation) -> None:
        # A full or hanging disk does not prevent the operation.
        if self._audit_path is None:
            return
        try:
            await on_disk(audit.append, self._audit_path, operation.to_row())
        except OSError as error:
            log.error("action=audit_failed id=%s path=%s: %s", operation.id, self._audit_path, error.strerror)

    def _forget_old(self) -> None:
        ended = [id_ for id_, operation in self._operations.items() if operation.state != "running"]
        for id_ in ended[: max(len(self._operations) - _KEPT, 0)]:
            del self._operations[id_]


def interrupted(path: Path, now: float) -> list[Operation]:
    """Returns the operations without an end in the audit log, as `unknown`. `now` is Unix time. Raises OSError."""
    begun: dict[tuple[str, float], JsonObject] = {}
    for line in _lines(path):
        if line.get("via") != "cli" and isinstance(line.get("id"), str) and isinstance(line.get("params"), dict):
            key = line["id"], line.get("started_at", now)
            if line.get("state") == "running":
                begun[key] = line
            else:
                begun.pop(key, None)
    return [
        Operation(
            id=id_,
            name=str(line.get("operation")),
            params=line["params"],
            by=str(line.get("by")),
            uid=line.get("uid"),
            via=str(line.get("via")),
            started_at=started_at,
            deadline_seconds=line.get("deadline_seconds", 0.0),
            touches=frozenset(),
            state="unknown",
            text="interrupted: the master was killed during the operation",
            ended_at=now,
        )
        for (id_, started_at), line in begun.items()
        if id_.isdecimal()
    ]


def _lines(path: Path) -> Iterator[JsonObject]:
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 256 * 1024, 0))  # enough for the 500 known operations
        for text in file.read().splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # the first may be half a line
                continue
            if isinstance(line, dict):
                yield line
