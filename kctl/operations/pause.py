"""`pause`: stops reading a worker, a topic, a partition or everything until `resume`."""

from __future__ import annotations

from kctl.master.operations.fleet_operation import BATCH_SECONDS, Caller, Context, Done, Report
from kctl.operations.scoped import ScopedOperation


class PauseReading(ScopedOperation, rpc="pause", for_all_hosts=True, limit_seconds=BATCH_SECONDS):
    """Stop reading a worker, a topic, a partition or everything, until it is resumed.

    Workers stay in their group and keep their partitions. The pause survives rebalances and restarts of workers and of
    the master. `kctl status` shows each pause with caller and time. The engine cannot be paused. Gives up after 120 s,
    or `--deadline`. With several hosts, `--topic` applies to all of them, unless you pass `--host`; `--all` applies to
    this host, or with `--host all` to all.

    kctl pause --topic orders --partition 3
    kctl pause --worker sinker-0
    kctl pause --all
    """

    def problem(self, mark: str = "") -> str | None:
        if self.worker is None and self.topic is None and self.partition is None and not self.all:
            if mark:
                return f"give {mark}worker NAME, {mark}topic NAME (with {mark}partition N), or {mark}all"
            return "give a worker, a topic (and a partition of it), or all"
        return ScopedOperation.problem(self, mark)

    async def carry_out(self, context: Context, caller: Caller, report: Report) -> Done:
        """Records the pause before sending it, so that it also applies to a process that starts in between."""
        before = context.pauses.all()
        made = context.pauses.add(self.worker, self.topic, self.partition, caller.name)
        carried_out = await context.send_all_pauses(self.worker, report, before)
        return f"{made.what} is paused; {carried_out}", {"paused": [made.scope() | {"worker": made.worker}]}
