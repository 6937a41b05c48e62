"""`resume`: ends pauses."""

from __future__ import annotations

from kctl.master.operations.fleet_operation import Caller, Context, Done, Report
from kctl.operations.pause import ScopedOperation


class ResumeReading(ScopedOperation, rpc="resume", for_all_hosts=True):
    """End pauses and read again.

    Ends every pause, or only the pause of a worker, a topic or a partition. `--host` works as for `kctl pause`.
    """

    async def carry_out(self, context: Context, _caller: Caller, report: Report) -> Done:
        before = context.pauses.all()
        removed = [each.what for each in context.pauses.remove(self.worker, self.topic, self.partition)]
        carried_out = await context.send_all_pauses(self.worker, report, before)
        what = "everything" if "everything" in removed else ", ".join(removed)
        return f"resumed: {what}; {carried_out}", {"resumed": removed}
