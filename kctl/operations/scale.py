"""`scale`: changes the number of workers or sinkers."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

from kctl.config.rules import mistakes
from kctl.errors import ConfigError, OperationRefused
from kctl.master.operations.fleet_operation import LONG_SECONDS, Caller, Context, Done, FleetOperation, OnOne, Report
from kctl.master.restart import SupervisionState
from kctl_agent.errors import PathError
from kctl_agent.rpc.messages import number_of
from kctl_agent.rpc.params import param
from kctl_agent.rpc.wire import JsonObject

if TYPE_CHECKING:
    from kctl.master.process_supervisor import ProcessSupervisor
    from kctl.master.supervisor import Supervisor

_KINDS = {"workers": "worker", "sinkers": "sinker"}


class ScaleFleet(FleetOperation, rpc="scale", is_long=True, for_all_hosts=True, limit_seconds=LONG_SECONDS):
    """Run more or fewer workers or sinkers, until the fleet restarts or reloads.

    kctl scale workers=4 sinkers=2 --wait
    """

    workers: int | None = param("how many", least=0, most=1000, is_pair=True, default=None)
    sinkers: int | None = param("how many", least=0, most=1000, is_pair=True, default=None)

    async def shared(self, context: Context, params: JsonObject, _on_one: OnOne) -> dict[str, JsonObject]:
        assert context.hosts is not None
        hosts = context.hosts.names
        return {
            host: {
                name: count // len(hosts) + (number < count % len(hosts)) if name in _KINDS else count
                for name, count in params.items()
            }
            for number, host in enumerate(hosts)
        }

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset({*context.supervisor.names, "scale"})

    async def carry_out(self, context: Context, _caller: Caller, report: Report) -> Done:
        wanted = {kind: count for kind in _KINDS if (count := getattr(self, kind)) is not None}
        if not wanted:
            raise OperationRefused("give workers or sinkers, and how many")
        return await scaled(context, wanted, report)


async def scaled(context: Context, wanted: dict[str, int], report: Report) -> Done:
    from kctl.master.operations.context import together

    config, supervisor = context.config, context.supervisor
    for kind, count in wanted.items():
        config = replace(config, **{kind: replace(getattr(config, kind), count=count)})
    if found := mistakes(config):
        raise ConfigError("\n".join(found))
    names, kinds = supervisor.names, {_KINDS[kind] for kind in wanted}
    kept = [each for each in names if supervisor.process(each).launch.kind not in kinds]
    chosen = [each for kind, count in wanted.items() for each in _chosen(supervisor, _KINDS[kind], count)]
    try:
        target = {launch.name: launch for launch in context.launches(config, [*kept, *chosen])}
    except PathError as error:
        raise OperationRefused(str(error)) from None
    down = [each for each in chosen if each in names and _is_down(supervisor.process(each))]
    added, removed = [each for each in chosen if each not in names], [each for each in names if each not in target]
    # At its next start the engine makes room for the current number of workers.
    context.use(config, target.values())
    starting = [*(supervisor.add(target[each]) for each in added), *map(supervisor.process, down)]
    before = [(process, process.incarnation) for process in starting]
    for process in starting:
        process.start()
    started = sorted(each.name for each in starting)
    report(f"starting {', '.join(started) or 'none'}, stopping {', '.join(removed) or 'none'}")
    await together(
        [
            *(_removed(context, each) for each in removed),
            *(context.up(process, incarnation, report) for process, incarnation in before),
        ]
    )
    counts = ", ".join(number_of(count, _KINDS[kind]) for kind, count in wanted.items())
    return (
        f"{counts} until the fleet restarts or reloads: to keep it, set `count` in the configuration; "
        f"running: {', '.join(chosen) or 'none'}",
        {"started": started, "stopped": removed, "running": chosen},
    )


def _chosen(supervisor: Supervisor, kind: str, count: int) -> list[str]:
    known = [each for each in map(supervisor.process, supervisor.names) if each.launch.kind == kind]
    # Running processes first, then stopped or given-up ones. New ones follow.
    known.sort(key=lambda each: (_is_down(each), _number(each.name)))
    names = [each.name for each in known]
    new = (name for number in itertools.count() if (name := f"{kind}-{number}") not in names)
    return sorted([*names, *itertools.islice(new, max(count - len(names), 0))][:count], key=_number)


def _number(name: str) -> int:
    return int(name.rpartition("-")[2])


def _is_down(process: ProcessSupervisor) -> bool:
    return process.state is SupervisionState.FATAL or process.status().desired == SupervisionState.STOPPED.value


async def _removed(context: Context, name: str) -> None:
    from kctl.master.operations.context import goes_on

    with goes_on(f"{name} has been asked to leave"):
        await context.supervisor.remove(name)
