"""`reload`: reads the configuration again and applies what it can."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kctl.config.effects import SettingChange, changes
from kctl.config.forms import Effect
from kctl.config.values import as_json
from kctl.errors import AgentRefused, OperationUnknown
from kctl.master.operations.fleet_operation import LONG_SECONDS, Caller, Context, Done, FleetOperation, Report
from kctl.master.restart import SupervisionState
from kctl.master.user_code import check_handler
from kctl.operations.restart import ENGINE_RESTARTS, restarted_by_all, would_change
from kctl.operations.scale import scaled
from kctl_agent.rpc.wire import JsonObject

if TYPE_CHECKING:
    from kctl.config.sections import Config

_IMPORT_SECONDS = 30.0


class ReloadConfig(FleetOperation, rpc="reload", for_all_hosts=True, limit_seconds=LONG_SECONDS):
    """Read the configuration again.

    Changed settings take effect at once if possible. kctl names the settings that need a restart of processes or of the
    fleet. If the file cannot be used, kctl changes no setting. SIGHUP to the master has the same effect.
    """

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset({*context.supervisor.names, "scale"})

    async def carry_out(self, context: Context, _caller: Caller, report: Report) -> Done:
        wanted = await asyncio.to_thread(context.reread)
        found = changes(context.config, wanted)
        names = {change.name for change in found}
        if "sinkers.handler" in names:
            await asyncio.to_thread(check_handler, wanted, _IMPORT_SECONDS)
        by_effect = {effect: [change for change in found if change.effect is effect] for effect in Effect}
        config = _applicable(context, by_effect[Effect.NOW] + by_effect[Effect.NEXT_START], wanted)
        use_groups = context.prepare_groups(config)
        # Reads tokens and certificates even if no setting has changed, because their files may have been renewed.
        renewed = context.use_http(config.http)
        context.use(config, context.launches(config, context.supervisor.names))
        await use_groups()
        if "log.level" in names:
            await _set_log_level(context)
        counts = {kind: getattr(wanted, kind).count for kind in ("workers", "sinkers") if f"{kind}.count" in names}
        if counts:
            await scaled(context, counts, report)
        return "; ".join(_sentences(context, by_effect, renewed)) or "nothing has changed", {
            effect.name.lower(): [_as_json(change) for change in changed] for effect, changed in by_effect.items()
        }


def _sentences(context: Context, by_effect: dict[Effect, list[SettingChange]], renewed: list[str]) -> Iterator[str]:
    if renewed:
        yield f"HTTP uses new {' and '.join(renewed)}"
    for effect, changed in by_effect.items():
        if changed:
            when = _after_restart(context, changed) if effect is Effect.NEXT_START else ""
            yield f"{when or effect.value}: {_named(changed)}"


def _after_restart(context: Context, changed: list[SettingChange]) -> str:
    every = restarted_by_all(context)
    are_others = context.config.storage.kind.is_handled_inside  # then workers call the handler
    is_of_sinkers = not are_others and all(change.name.startswith("sinkers.") for change in changed)
    processes = [each for each in every if would_change(each) and (each.launch.kind == "sinker" or not is_of_sinkers)]
    which = "--all" if processes == every else " ".join(process.name for process in processes)
    beside = f" ({ENGINE_RESTARTS})" if any(process.launch.kind == "engine" for process in processes) else ""
    return f"after `kctl restart {which} --rolling`{beside}" if processes else ""


def _applicable(context: Context, changed: list[SettingChange], wanted: Config) -> Config:
    config = replace(context.config, checkpoints=wanted.checkpoints)
    for change in changed:
        section, _, key = change.name.partition(".")
        if section != "checkpoints" and key != "count":
            value = getattr(getattr(wanted, section), key)
            config = replace(config, **{section: replace(getattr(config, section), **{key: value})})
    return config


async def _set_log_level(context: Context) -> None:
    level = context.config.log.level
    logging.getLogger().setLevel(level)
    for name in context.supervisor.names:
        if context.supervisor.process(name).state is SupervisionState.RUNNING:
            try:
                await context.agents.operate(name, "log_level", {"level": level})
            except (AgentRefused, OperationUnknown) as error:  # the process gets the new level at its next start
                logging.getLogger(__name__).warning("action=log_level worker=%s: %s", name, error)


def _named(changed: list[SettingChange]) -> str:
    return ", ".join(f"{change.name} {_text(change.before)} -> {_text(change.after)}" for change in changed)


def _as_json(change: SettingChange) -> JsonObject:
    return {"setting": change.name, "before": _text(change.before), "after": _text(change.after)}


def _text(value: object) -> str:
    return str(value) or '""' if isinstance(value, str | Path) else json.dumps(as_json(value))
