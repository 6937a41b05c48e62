"""`start`: starts a process of a fleet."""

from __future__ import annotations

from kctl.master.operations.fleet_operation import Caller, Context, Done, FleetOperation, Report
from kctl.master.restart import SupervisionState
from kctl_agent.rpc.params import param


class StartProcess(FleetOperation, rpc="start", limit_seconds=180.0):
    """Start a worker, a sinker or the engine that is stopped, is `fatal` or waits to restart."""

    name: str = param("a worker, a sinker or `engine`")

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset({context.supervisor.process(self.name).name})

    async def carry_out(self, context: Context, _caller: Caller, report: Report) -> Done:
        process = context.supervisor.process(self.name)
        if process.state in (SupervisionState.STARTING, SupervisionState.RUNNING):
            return f"{process.name} is {process.state} already{await context.file_changed()}", {"pid": process.pid}
        before = process.incarnation
        process.start()
        await context.up(process, before, report)
        return f"{process.name} runs as pid {process.pid}{await context.file_changed()}", {"pid": process.pid}
