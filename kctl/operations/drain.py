"""`drain`: a process finishes the work it has begun, and stops."""

from __future__ import annotations

import time

from kctl.errors import OperationRefused
from kctl.master.operations.fleet_operation import LONG_SECONDS, Caller, Context, Done, FleetOperation, Report
from kctl_agent.rpc.params import param


class DrainProcess(FleetOperation, rpc="drain", is_long=True, limit_seconds=LONG_SECONDS):
    """Let a worker or sinker finish its work, commit and stop.

    A drained process stays stopped until `kctl start NAME`. If the process has not finished its work within
    `--deadline`, it continues as before. If the process has finished but does not exit within
    `workers.revoke_timeout_seconds` + 60 s, kctl kills it.
    """

    name: str = param("a worker or sinker, not the engine", is_argument=True)

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset({context.supervisor.process(self.name).name})

    async def carry_out(self, context: Context, caller: Caller, report: Report) -> Done:
        from kctl.master.operations.context import goes_on

        process = context.supervisor.process(self.name)
        if process.launch.kind == "engine":
            raise OperationRefused(f"workers run in {process.name}: drain them first, then `kctl stop {process.name}`")
        context.pauses.draining[process.name] = {
            "topic": None,
            "partition": None,
            "by": f"{caller.name} (drain)",
            "since": time.time(),
        }
        try:
            report(f"{process.name} finishes its work")
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
