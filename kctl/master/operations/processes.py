"""`start`, `stop`, `restart`, `drain`, `scale`: which processes live."""

from __future__ import annotations

import time
from dataclasses import replace

from kctl.config import Config, check_together
from kctl.errors import OperationRefused
from kctl.master.keeper import Keeper, Launch
from kctl.master.launch import launches, sinker_launches
from kctl.master.operations.base import Caller, Tell
from kctl.master.operations.context import Context, file_changed, settled, together
from kctl.master.restart import State
from kctl_agent.errors import PathError
from kctl_agent.messages import number_of
from kctl_agent.wire import JsonObject

__all__ = ["drain", "restart", "scale", "scaled", "start", "stop"]

_KINDS = {"workers": "worker", "sinkers": "sinker"}


async def start(context: Context, params: JsonObject, _caller: Caller, tell: Tell) -> tuple[str, JsonObject]:
    """Starts a process that was stopped or given up, or that waits for its next try; waits until it has come up."""
    keeper = context.supervisor.keeper(params["name"])
    if keeper.state in (State.STARTING, State.RUNNING):
        return f"{keeper.name} is {keeper.state} already{await file_changed(context)}", _pid(keeper)
    before = keeper.incarnation
    keeper.start()
    await keeper.until(lambda: keeper.incarnation > before)
    await settled(context, keeper, before, tell)
    return f"{keeper.name} runs as pid {keeper.pid}{await file_changed(context)}", _pid(keeper)


async def stop(context: Context, params: JsonObject, _caller: Caller, tell: Tell) -> tuple[str, JsonObject]:
    """Stops a process, kills it after `stop_timeout_seconds`; it stays stopped until it is started by operation."""
    keeper = context.supervisor.keeper(params["name"])
    tell(f"{keeper.name} is asked to leave")
    started = time.monotonic()
    await keeper.stop()
    return f"{keeper.name} is stopped, after {time.monotonic() - started:.1f} s", {}


async def restart(context: Context, params: JsonObject, _caller: Caller, tell: Tell) -> tuple[str, JsonObject]:
    """Restarts one process, several, or all: at once, or with `rolling` one after another, each only when the one
    before it has come up again. The first that does not ends it."""
    keepers = context.chosen(params)
    done: list[str] = []

    async def one(keeper: Keeper) -> None:
        before, is_dead = keeper.incarnation, keeper.pid is None
        keeper.restart()
        if is_dead:  # what it was before is no answer to whether it comes up
            await keeper.until(lambda: keeper.incarnation > before)
        await settled(context, keeper, before, tell)
        done.append(keeper.name)
        tell(f"{len(done)} of {len(keepers)} restarted: {', '.join(sorted(done))}")

    if params.get("rolling", False):
        for keeper in keepers:
            if keeper.state in (State.STOPPED, State.FATAL) and params.get("all"):
                continue  # who was stopped by operation is not started by a restart of all
            await one(keeper)
    else:
        alive = [each for each in keepers if not params.get("all") or each.state not in (State.STOPPED, State.FATAL)]
        await together(one(keeper) for keeper in alive)
    told = ", ".join(sorted(done)) or "none, for none is running"
    return f"restarted: {told}{await file_changed(context)}", {"restarted": sorted(done)}


async def drain(context: Context, params: JsonObject, caller: Caller, tell: Tell) -> tuple[str, JsonObject]:
    """Lets a process finish what it has begun, commit and leave; nothing is killed or abandoned. When that takes longer
    than the operation may, it goes on as before."""
    keeper = context.supervisor.keeper(params["name"])
    context.draining[keeper.name] = {
        "topic": None,
        "partition": None,
        "by": f"{caller.name} (drain)",
        "since": time.time(),
    }
    try:
        tell(f"{keeper.name} finishes what it has begun")
        await context.tell_paused(keeper.name, tell)
        tell(f"{keeper.name} commits and leaves")
        await keeper.stop(patience_seconds=context.config.workers.revoke_timeout_seconds + 60)
    except BaseException:
        del context.draining[keeper.name]
        context.later(context.tell_paused(keeper.name, lambda _: None))
        raise
    del context.draining[keeper.name]
    return f"{keeper.name} is drained and stopped", {}


async def scale(context: Context, params: JsonObject, _caller: Caller, tell: Tell) -> tuple[str, JsonObject]:
    """Runs so many workers, so many sinkers: starts what is missing, drains the highest numbers that are too many."""
    wanted = {kind: params[kind] for kind in _KINDS if kind in params}
    if not wanted:
        raise OperationRefused("say workers or sinkers, and how many")
    return await scaled(context, wanted, tell)


async def scaled(context: Context, wanted: dict[str, int], tell: Tell) -> tuple[str, JsonObject]:
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
    before = {name: context.supervisor.add(target[name]) for name in added}
    tell(f"starting {', '.join(added) or 'none'}, stopping {', '.join(removed) or 'none'}")
    await together(
        [
            *(context.supervisor.remove(name) for name in removed),
            *(settled(context, keeper, 0, tell) for keeper in before.values()),
        ]
    )
    told = ", ".join(number_of(count, _KINDS[kind]) for kind, count in wanted.items())
    return (
        f"{told} until the next start of the fleet, or a reload: keep it with `count` in the configuration",
        {"started": added, "stopped": removed},
    )


def _launches(context: Context, config: Config) -> list[Launch]:
    return [*launches(config, context.jars, context.worker_command), *sinker_launches(config)]


def _pid(keeper: Keeper) -> JsonObject:
    return {"pid": keeper.pid}
