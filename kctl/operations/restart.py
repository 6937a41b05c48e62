"""`restart`: restarts processes of a fleet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.master.operations.fleet_operation import LONG_SECONDS, Caller, Context, Done, FleetOperation, Report
from kctl.master.restart import SupervisionState
from kctl_agent.rpc.params import param

if TYPE_CHECKING:
    from kctl.master.process_supervisor import ProcessSupervisor

ENGINE_RESTARTS = "the engine restarts first: no worker reads for about 5 s"


class RestartProcesses(FleetOperation, rpc="restart", is_long=True, for_all_hosts=True, limit_seconds=LONG_SECONDS):
    """Restart workers, sinkers or the engine.

    Each worker first finishes its batch, commits and leaves the group. `--all --rolling` restarts `fatal` workers and
    sinkers before the others. `--all` omits `unkillable` processes, and processes that you stopped (use
    `kctl start NAME`). A restart of the engine stops all reading for about 5 s. On a terminal, kctl therefore asks
    before it restarts the engine.

    kctl restart worker-0 --wait
    kctl restart worker-0 worker-1 --rolling
    kctl restart --all --rolling
    """

    name: str | None = param("workers, sinkers, or `engine`", separator=",", default=None)
    all: bool = param(
        "all except stopped ones; the engine only if it is down or its settings have changed", default=False
    )
    rolling: bool = param("one at a time, each after the previous one is up", default=False)
    dry_run: bool = param("only list the processes that would restart", default=False)

    def problem(self, mark: str = "") -> str | None:
        return f"give one or more names, or {mark}all" if (self.name is None) != self.all else None

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset(process.name for process in self._chosen(context)) | {"scale"}

    async def carry_out(self, context: Context, _caller: Caller, report: Report) -> Done:
        from kctl.master.operations.context import together

        processes = self._chosen(context) if self.name else restarted_by_all(context)
        engines = [each for each in processes if each.launch.kind == "engine"]  # the others work in the engine
        if self.dry_run:
            return _plan(processes, bool(engines))
        done: list[str] = []

        async def one(process: ProcessSupervisor) -> None:
            before = process.incarnation
            process.restart()
            await context.up(process, before, report)
            done.append(process.name)
            report(f"{len(done)} of {len(processes)} restarted: {', '.join(sorted(done))}")

        if self.rolling:
            for process in processes:  # a failed restart ends the operation
                await one(process)
        else:
            await together(one(process) for process in engines)
            await together(one(process) for process in processes if process not in engines)
        names = ", ".join(sorted(done)) or "none, because none is running"
        return f"restarted: {names}{await context.file_changed()}", {"restarted": sorted(done)}

    def _chosen(self, context: Context) -> list[ProcessSupervisor]:
        names = context.supervisor.names if self.name is None else dict.fromkeys(self.name.split(","))
        return [context.supervisor.process(each) for each in names]


def restarted_by_all(context: Context) -> list[ProcessSupervisor]:
    """Returns the processes that `--all` restarts: first the engine if it is down or its Spark settings have changed,
    then `fatal` processes, then the others. Omits stopped and unkillable processes."""
    processes = map(context.supervisor.process, context.supervisor.names)
    left_out = (SupervisionState.STOPPED, SupervisionState.UNKILLABLE)
    alive = [each for each in processes if each.state not in left_out and _is_taken(each)]
    return sorted(alive, key=lambda each: (each.launch.kind != "engine", each.state is not SupervisionState.FATAL))


def would_change(process: ProcessSupervisor) -> bool:
    """Whether a restart would change settings other than the log level, which changes without a restart."""
    settings = process.launch.settings.items()
    return any(value != process.started_with.get(key) for key, value in settings if key != "log_level")


def _plan(processes: list[ProcessSupervisor], has_engine: bool) -> Done:
    names = [each.name for each in processes]
    text = ", ".join(names) or "none, because none is running"
    beside = f"; {ENGINE_RESTARTS}" if has_engine else ""
    return f"it would be: {text}{beside}", {"restarted": names, "engine": has_engine}


def _is_taken(process: ProcessSupervisor) -> bool:
    before, now = process.started_with.get("spark"), process.launch.settings.get("spark")
    return process.launch.kind != "engine" or process.pid is None or before != now
