"""`start`, `stop`, `restart`, `drain`, `scale`: which processes live."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace

from kctl.config import check_together
from kctl.errors import OperationRefused
from kctl.master.launch import supervision_policies
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context, file_changed, goes_on, settled, together
from kctl.master.process_supervisor import ProcessSupervisor
from kctl.master.restart import SupervisionState
from kctl.master.supervisor import Supervisor
from kctl_agent.errors import PathError
from kctl_agent.rpc.messages import number_of
from kctl_agent.rpc.wire import JsonObject

__all__ = ["ENGINE_RESTARTS", "drain", "restart", "restarted_by_all", "scale", "scaled", "start", "stop"]

ENGINE_RESTARTS = "the engine is restarted first: nobody reads for about 5 s"
_KINDS = {"workers": "worker", "sinkers": "sinker"}


async def start(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Starts a process that was stopped or given up, or that waits for its next try; waits until it has come up."""
    process = context.supervisor.process(params["name"])
    if process.state in (SupervisionState.STARTING, SupervisionState.RUNNING):
        return f"{process.name} is {process.state} already{await file_changed(context)}", _pid(process)
    before = process.incarnation
    process.start()
    await _up(context, process, before, report)
    return f"{process.name} runs as pid {process.pid}{await file_changed(context)}", _pid(process)


async def stop(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Stops a process, kills it after `stop_timeout_seconds`; it stays stopped until an operation starts it."""
    process = context.supervisor.process(params["name"])
    report(f"{process.name} is asked to leave")
    started = time.monotonic()
    with goes_on(f"{process.name} has been asked to leave"):
        await process.stop()
    return f"{process.name} is stopped, after {time.monotonic() - started:.1f} s", {}


async def restart(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Restarts one process, several, or all: at once, or with `rolling` one after another, each only when the one
    before it has come up again. The first that does not ends it."""
    processes = context.chosen(params) if params.get("name") else restarted_by_all(context)
    engines = [each for each in processes if each.launch.kind == "engine"]  # the others work in it
    if params.get("dry_run", False):
        text = ", ".join(each.name for each in processes) or "none, for none is running"
        beside = f"; {ENGINE_RESTARTS}" if engines else ""
        return f"it would be: {text}{beside}", {"restarted": [each.name for each in processes], "engine": bool(engines)}
    done: list[str] = []

    async def one(process: ProcessSupervisor) -> None:
        before = process.incarnation
        process.restart()
        await _up(context, process, before, report)
        done.append(process.name)
        report(f"{len(done)} of {len(processes)} restarted: {', '.join(sorted(done))}")

    if params.get("rolling", False):
        for process in processes:
            await one(process)
    else:
        await together(one(process) for process in engines)
        await together(one(process) for process in processes if process not in engines)
    names = ", ".join(sorted(done)) or "none, for none is running"
    return f"restarted: {names}{await file_changed(context)}", {"restarted": sorted(done)}


def restarted_by_all(context: Context) -> list[ProcessSupervisor]:
    """In this order: the engine, only if its JVM is down or would get other settings, for code of workers is not kept
    in it; what was given up, which nobody misses if it does not come up; and all else that was not stopped by an
    operation."""
    processes = map(context.supervisor.process, context.supervisor.names)
    alive = [each for each in processes if each.state is not SupervisionState.STOPPED and _is_outdated(each)]
    return sorted(alive, key=lambda each: (each.launch.kind != "engine", each.state is not SupervisionState.FATAL))


def _is_outdated(process: ProcessSupervisor) -> bool:
    before, now = process.started_with.get("spark"), process.launch.settings.get("spark")
    return process.launch.kind != "engine" or process.pid is None or before != now


async def drain(context: Context, params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Lets a process finish what it has begun, commit and leave; nothing is killed or abandoned. When that takes longer
    than the operation may, it goes on as before."""
    process = context.supervisor.process(params["name"])
    if process.launch.kind == "engine":
        raise OperationRefused(f"{process.name} is what workers run in: drain those, then `kctl stop {process.name}`")
    context.pauses.draining[process.name] = {
        "topic": None,
        "partition": None,
        "by": f"{caller.name} (drain)",
        "since": time.time(),
    }
    try:
        report(f"{process.name} finishes what it has begun")
        await context.send_pauses(process.name, report)
        report(f"{process.name} commits and leaves")
        with goes_on(f"{process.name} has been asked to leave"):
            await process.stop(timeout_seconds=context.config.workers.revoke_timeout_seconds + 60)
    except BaseException:
        del context.pauses.draining[process.name]
        await context.take_back([process.name])
        raise
    del context.pauses.draining[process.name]
    return f"{process.name} is drained and stopped", {}


async def scale(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Runs so many workers, so many sinkers: starts what is missing, stops what is too many."""
    wanted = {kind: params[kind] for kind in _KINDS if kind in params}
    if not wanted:
        raise OperationRefused("give workers or sinkers, and how many")
    return await scaled(context, wanted, report)


async def scaled(context: Context, wanted: dict[str, int], report: Report) -> tuple[str, JsonObject]:
    """The work of `scale`, for `reload` too."""
    config, supervisor = context.config, context.supervisor
    for kind, count in wanted.items():
        if not 0 <= count <= 1000:
            raise OperationRefused(f"{kind} must be from 0 to 1000")
        config = replace(config, **{kind: replace(getattr(config, kind), count=count)})
    check_together(config)
    names, kinds = supervisor.names, {_KINDS[kind] for kind in wanted}
    kept = [each for each in names if supervisor.process(each).launch.kind not in kinds]
    chosen = [each for kind, count in wanted.items() for each in _chosen(supervisor, _KINDS[kind], count)]
    try:
        target = {launch.name: launch for launch in context.launches(config, [*kept, *chosen])}
    except PathError as error:
        raise OperationRefused(str(error)) from None
    down = [each for each in chosen if each in names and _is_down(supervisor.process(each))]
    added, removed = [each for each in chosen if each not in names], [each for each in names if each not in target]
    context.config = config
    # An engine that is started next has room for as many workers as there are now.
    supervisor.reconfigure(target.values(), supervision_policies(config))
    starting = [*(supervisor.add(target[each]) for each in added), *map(supervisor.process, down)]
    before = [(process, process.incarnation) for process in starting]
    for process in starting:
        process.start()
    started = sorted(each.name for each in starting)
    report(f"starting {', '.join(started) or 'none'}, stopping {', '.join(removed) or 'none'}")
    await together(
        [
            *(_removed(context, each) for each in removed),
            *(_up(context, process, incarnation, report) for process, incarnation in before),
        ]
    )
    counts = ", ".join(number_of(count, _KINDS[kind]) for kind, count in wanted.items())
    return (
        f"{counts} until the next start of the fleet, or a reload: keep it with `count` in the configuration; "
        f"running: {', '.join(chosen) or 'none'}",
        {"started": started, "stopped": removed, "running": chosen},
    )


def _chosen(supervisor: Supervisor, kind: str, count: int) -> list[str]:
    """So many of a kind: first those that run, then those that were stopped or given up, then new ones; of each the
    lowest numbers."""
    known = [each for each in map(supervisor.process, supervisor.names) if each.launch.kind == kind]
    known.sort(key=lambda each: (_is_down(each), _number(each.name)))
    names = [each.name for each in known]
    new = (name for number in itertools.count() if (name := f"{kind}-{number}") not in names)
    return sorted([*names, *itertools.islice(new, max(count - len(names), 0))][:count], key=_number)


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _is_down(process: ProcessSupervisor) -> bool:
    return process.state is SupervisionState.FATAL or process.status().desired == SupervisionState.STOPPED.value


async def _up(context: Context, process: ProcessSupervisor, before: int, report: Report) -> None:
    """Waits until the process that was requested after incarnation `before` has come up. Raises OperationRefused,
    OperationUnknown."""
    with goes_on(f"{process.name} is started anew"):
        await process.until(lambda: process.incarnation > before)
        await settled(context, process, before, report)


async def _removed(context: Context, name: str) -> None:
    with goes_on(f"{name} has been asked to leave"):
        await context.supervisor.remove(name)


def _pid(process: ProcessSupervisor) -> JsonObject:
    return {"pid": process.pid}
