"""`start`, `stop`, `restart`, `drain`, `scale`: which processes live."""

from __future__ import annotations

import time
from dataclasses import replace

from kctl.config import Config, check_together
from kctl.errors import OperationRefused
from kctl.master.launch import launches, supervision_policies
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context, file_changed, goes_on, settled, together
from kctl.master.process_supervisor import Launch, ProcessSupervisor
from kctl.master.restart import State
from kctl_agent.errors import PathError
from kctl_agent.messages import number_of
from kctl_agent.wire import JsonObject

__all__ = ["drain", "restart", "scale", "scaled", "start", "stop"]

_KINDS = {"workers": "worker", "sinkers": "sinker"}


async def start(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Starts a process that was stopped or given up, or that waits for its next try; waits until it has come up."""
    process = context.supervisor.process(params["name"])
    if process.state in (State.STARTING, State.RUNNING):
        return f"{process.name} is {process.state} already{await file_changed(context)}", _pid(process)
    before = process.incarnation
    process.start()
    with goes_on(f"{process.name} is started"):
        await process.until(lambda: process.incarnation > before)
        await settled(context, process, before, report)
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
    processes = context.chosen(params)
    done: list[str] = []

    async def one(process: ProcessSupervisor) -> None:
        before, is_dead = process.incarnation, process.pid is None
        process.restart()
        with goes_on(f"{process.name} is started anew"):
            if is_dead:  # what it was before is no answer to whether it comes up
                await process.until(lambda: process.incarnation > before)
            await settled(context, process, before, report)
        done.append(process.name)
        report(f"{len(done)} of {len(processes)} restarted: {', '.join(sorted(done))}")

    if params.get("rolling", False):
        for process in processes:
            if process.state in (State.STOPPED, State.FATAL) and params.get("all"):
                continue  # what was stopped by an operation is not started by a restart of all
            await one(process)
    else:
        alive = [each for each in processes if not params.get("all") or each.state not in (State.STOPPED, State.FATAL)]
        engines = [each for each in alive if each.launch.kind == "engine"]  # the others work in it
        await together(one(process) for process in engines)
        await together(one(process) for process in alive if process not in engines)
    names = ", ".join(sorted(done)) or "none, for none is running"
    return f"restarted: {names}{await file_changed(context)}", {"restarted": sorted(done)}


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
    """Runs so many workers, so many sinkers: starts what is missing, drains the highest numbers that are too many."""
    wanted = {kind: params[kind] for kind in _KINDS if kind in params}
    if not wanted:
        raise OperationRefused("give workers or sinkers, and how many")
    return await scaled(context, wanted, report)


async def scaled(context: Context, wanted: dict[str, int], report: Report) -> tuple[str, JsonObject]:
    """The work of `scale`, for `reload` too."""
    config = context.config
    for kind, count in wanted.items():
        if not 0 <= count <= 1000:
            raise OperationRefused(f"{kind} must be from 0 to 1000")
        config = replace(config, **{kind: replace(getattr(config, kind), count=count)})
    check_together(config)
    try:
        target = {launch.name: launch for launch in _launches(context, config)}
    except PathError as error:
        raise OperationRefused(str(error)) from None
    names = set(context.supervisor.names)
    added, removed = sorted(target.keys() - names), sorted(names - target.keys())
    context.config = config
    # An engine that is started next has room for as many workers as there are now.
    context.supervisor.reconfigure(target.values(), supervision_policies(config))
    starting = [context.supervisor.add(target[name]) for name in added]
    report(f"starting {', '.join(added) or 'none'}, stopping {', '.join(removed) or 'none'}")
    await together(
        [
            *(_removed(context, name) for name in removed),
            *(_added(context, process, report) for process in starting),
        ]
    )
    counts = ", ".join(number_of(count, _KINDS[kind]) for kind, count in wanted.items())
    return (
        f"{counts} until the next start of the fleet, or a reload: keep it with `count` in the configuration",
        {"started": added, "stopped": removed},
    )


async def _removed(context: Context, name: str) -> None:
    with goes_on(f"{name} has been asked to leave"):
        await context.supervisor.remove(name)


async def _added(context: Context, process: ProcessSupervisor, report: Report) -> None:
    with goes_on(f"{process.name} is started"):
        await settled(context, process, 0, report)


def _launches(context: Context, config: Config) -> list[Launch]:
    return launches(config, context.jars, context.worker_command)


def _pid(process: ProcessSupervisor) -> JsonObject:
    return {"pid": process.pid}
