"""`stop`: stops a process of a fleet."""

from __future__ import annotations

import time

from kctl.master.operations.fleet_operation import SHORT_SECONDS, Caller, Context, Done, FleetOperation, Report
from kctl_agent.rpc.params import param


class StopProcess(FleetOperation, rpc="stop"):
    """Stop a worker, a sinker or the engine. It stays stopped until an operation starts it."""

    name: str = param("a worker, a sinker or `engine`")

    def deadline_seconds(self, context: Context) -> float:
        return context.config.workers.stop_timeout_seconds + SHORT_SECONDS

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset({context.supervisor.process(self.name).name})

    async def carry_out(self, context: Context, _caller: Caller, report: Report) -> Done:
        from kctl.master.operations.context import goes_on

        process = context.supervisor.process(self.name)
        report(f"{process.name} is asked to leave")
        started = time.monotonic()
        with goes_on(f"{process.name} has been asked to leave"):
            await process.stop()
        return f"{process.name} is stopped, after {time.monotonic() - started:.1f} s", {}
