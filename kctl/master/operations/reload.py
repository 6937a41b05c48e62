"""`reload`: the configuration is read again, what can be applied is applied, and what cannot is named."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from kctl.config import Config
from kctl.config.effects import Change, changes
from kctl.config.forms import Effect
from kctl.errors import AgentRefused, OperationUnknown
from kctl.master.launch import supervision_policies
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context
from kctl.master.operations.processes import ENGINE_RESTARTS, restarted_by_all, scaled
from kctl.master.restart import SupervisionState
from kctl_agent.rpc.wire import JsonObject

__all__ = ["reload"]

_ANSWER_SECONDS = 5.0


async def reload(context: Context, _params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """A file that cannot be used changes nothing. What needs a new process is given to processes that start from now
    on; what needs a new master stays as it was. Tokens and certificate of HTTP are read again, whether or not a setting
    has changed: their files are what is renewed."""
    wanted = await asyncio.to_thread(context.reread)
    found = changes(context.config, wanted)
    by_effect = {effect: [change for change in found if change.effect is effect] for effect in Effect}
    config = _applicable(context, by_effect[Effect.NOW] + by_effect[Effect.NEXT_START], wanted)
    use_groups = context.prepare_groups(config)
    renewed = context.use_http(config.http)
    context.config = config
    context.supervisor.reconfigure(context.launches(config, context.supervisor.names), supervision_policies(config))
    await use_groups()
    names = {change.name for change in found}
    if "log.level" in names:
        await _set_log_level(context)
    counts = {kind: getattr(wanted, kind).count for kind in ("workers", "sinkers") if f"{kind}.count" in names}
    if counts:
        await scaled(context, counts, report)
    sentences = [f"{effect.value}: {_named(changed)}" for effect, changed in by_effect.items() if changed]
    result = {effect.name.lower(): [_as_json(change) for change in changed] for effect, changed in by_effect.items()}
    if renewed:
        sentences.insert(0, f"HTTP uses new {' and '.join(renewed)}")
    if by_effect[Effect.NEXT_START]:
        engine = any(process.launch.kind == "engine" for process in restarted_by_all(context))
        beside = f"; {ENGINE_RESTARTS}" if engine else ""
        sentences.append(f"`kctl restart --all --rolling` starts all processes anew{beside}")
    return "; ".join(sentences) or "nothing has changed", result


def _applicable(context: Context, changed: list[Change], wanted: Config) -> Config:
    """The configuration in force, with these settings of the wanted one; counts are left to `scaled`."""
    config = context.config
    for change in changed:
        section, _, key = change.name.partition(".")
        if key != "count":
            value = getattr(getattr(wanted, section), key)
            config = replace(config, **{section: replace(getattr(config, section), **{key: value})})
    return config


async def _set_log_level(context: Context) -> None:
    level = context.config.log.level
    logging.getLogger().setLevel(level)
    for name in context.supervisor.names:
        if context.supervisor.process(name).state is SupervisionState.RUNNING:
            try:
                await context.agents.operate(name, "log_level", {"level": level}, _ANSWER_SECONDS)
            except (AgentRefused, OperationUnknown) as error:  # it has the new level with its next start
                logging.getLogger(__name__).warning("action=log_level worker=%s: %s", name, error)


def _named(changed: list[Change]) -> str:
    return ", ".join(f"{change.name} {change.before!s} -> {change.after!s}" for change in changed)


def _as_json(change: Change) -> JsonObject:
    return {"setting": change.name, "before": str(change.before), "after": str(change.after)}
