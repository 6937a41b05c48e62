"""The table of operations: a name from the wire is looked up here and selects nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from kctl.master.operations.base import Caller, OperationType, Param, Report
from kctl.master.operations.context import Context
from kctl.master.operations.inspect import log_level, stack
from kctl.master.operations.processes import drain, restart, scale, start, stop
from kctl.master.operations.reading import check_read, pause, resume, scope, seek
from kctl.master.operations.reload import reload
from kctl_agent.rpc.wire import JsonObject

__all__ = ["operation_types"]

_Work: TypeAlias = Callable[[Context, JsonObject, Caller, Report], Awaitable[tuple[str, JsonObject]]]

_NAME = Param("name", "string", "a worker or sinker", required=True)
_SCOPE = (
    Param("worker", "string", "this worker or sinker"),
    Param("topic", "string", "this topic"),
    Param("partition", "integer", "this partition of the topic"),
    Param("all", "boolean", "everything"),
)
_SHORT_SECONDS = 30.0
_BATCH_SECONDS = 120.0
"""For the end of the running batches."""
_LONG_SECONDS = 600.0


_Touches: TypeAlias = Callable[[Context, JsonObject], frozenset[str]]


@dataclass(frozen=True, slots=True)
class _Entry:
    """An operation, apart from the fleet that it is carried out on."""

    name: str
    work: _Work
    summary: str
    params: tuple[Param, ...]
    touches: _Touches
    deadline_seconds: float | Callable[[Context], float] = _SHORT_SECONDS
    is_long: bool = False
    changes: bool = True

    def on(self, context: Context) -> OperationType:
        deadline = self.deadline_seconds
        seconds = deadline if isinstance(deadline, int | float) else deadline(context)
        return OperationType(
            self.name,
            self.summary,
            self.params,
            partial(self.touches, context),
            partial(self.work, context),
            lambda _: seconds,
            self.is_long,
            self.changes,
        )


def operation_types(context: Context) -> dict[str, OperationType]:
    """Every operation by its name, to be carried out with `context`."""
    return {each.name: each.on(context) for each in _TABLE}


# An unknown name is refused by these, before there is an operation.
def _the_named(context: Context, params: JsonObject) -> frozenset[str]:
    return frozenset({context.supervisor.process(params["name"]).name})


def _chosen(context: Context, params: JsonObject) -> frozenset[str]:
    return frozenset(process.name for process in context.chosen(params)) | {"scale"}


def _everybody(context: Context, _params: JsonObject) -> frozenset[str]:
    return frozenset({*context.supervisor.names, "scale"})


def _reading(context: Context, params: JsonObject) -> frozenset[str]:
    scope(context, params)
    return frozenset({"reading"})


def _sought(context: Context, params: JsonObject) -> frozenset[str]:
    check_read(context, params["topic"], params.get("partition"))
    return frozenset({"reading"})


def _logging(context: Context, params: JsonObject) -> frozenset[str]:
    if params["name"] != "master":
        context.supervisor.process(params["name"])
    return frozenset()


def _any_agent(context: Context, params: JsonObject) -> frozenset[str]:
    context.members.check_known(params["name"])
    return frozenset()


def _stop_seconds(context: Context) -> float:
    return context.config.workers.stop_timeout_seconds + _SHORT_SECONDS


_TABLE = (
    _Entry(
        "pause",
        pause,
        "read nothing of it until it is resumed; partitions stay where they are",
        _SCOPE,
        _reading,
        deadline_seconds=_BATCH_SECONDS,
    ),
    _Entry("resume", resume, "read again what was paused", _SCOPE, _reading),
    _Entry(
        "seek",
        seek,
        "go on reading a topic elsewhere: the group's offset and the stored offset move together",
        (
            Param("topic", "string", "its topic", required=True),
            Param("partition", "integer", "this partition only"),
            Param(
                "to",
                "string",
                "earliest, latest, an offset, a time such as 2026-11-21T10:00, or partitions with offsets: 0=1200,3=55",
                required=True,
            ),
            Param("dry_run", "boolean", "only show what would be skipped or handled again"),
        ),
        _sought,
        deadline_seconds=_BATCH_SECONDS,
    ),
    _Entry("start", start, "start one that was stopped or given up", (_NAME,), _the_named, deadline_seconds=180.0),
    _Entry("stop", stop, "stop one; it stays stopped", (_NAME,), _the_named, deadline_seconds=_stop_seconds),
    _Entry(
        "restart",
        restart,
        "start one anew, several, or all, at once or one after another",
        (
            Param("name", "string", "a worker or sinker; several with commas between them"),
            Param("all", "boolean", "all of them"),
            Param("rolling", "boolean", "one after another, each when the one before has come up"),
            Param("dry_run", "boolean", "only show which, and whether the engine is among them"),
        ),
        _chosen,
        deadline_seconds=_LONG_SECONDS,
        is_long=True,
    ),
    _Entry(
        "drain",
        drain,
        "let one finish what it has begun, commit and leave; nothing is killed",
        (_NAME,),
        _the_named,
        deadline_seconds=_LONG_SECONDS,
        is_long=True,
    ),
    _Entry(
        "scale",
        scale,
        "run so many workers or sinkers",
        (Param("workers", "integer", "how many"), Param("sinkers", "integer", "how many")),
        _everybody,
        deadline_seconds=_LONG_SECONDS,
        is_long=True,
    ),
    _Entry(
        "reload",
        reload,
        "read the configuration again, apply what can be applied, name what cannot",
        (),
        _everybody,
        deadline_seconds=_LONG_SECONDS,
    ),
    _Entry(
        "log_level",
        log_level,
        "write so much into the log, until the process ends",
        (
            Param("name", "string", "a worker, a sinker, or master", required=True),
            Param("level", "string", "DEBUG, INFO, WARNING or ERROR", required=True),
        ),
        _logging,
    ),
    _Entry("stack", stack, "where all threads stand, the JVM's too", (_NAME,), _any_agent, changes=False),
)
