"""`pause`: pauses a worker, a topic, a partition or everything until `resume`."""

from __future__ import annotations

from kctl.master.operations.fleet_operation import BATCH_SECONDS, Caller, Context, Done, FleetOperation, Report
from kctl_agent.errors import BadParams
from kctl_agent.rpc.messages import number_of, printable_name
from kctl_agent.rpc.params import param


class ScopedOperation(FleetOperation, shared_by_hosts="topic"):
    """An operation on one worker, one topic (or one of its partitions), or everything."""

    worker: str | None = param("only this worker or sinker, not the engine", metavar="NAME", default=None)
    topic: str | None = param("only this topic", metavar="NAME", default=None)
    partition: int | None = param("only this partition of the topic", metavar="N", least=0, default=None)
    all: bool = param("everything, including sinkers", default=False)

    def problem(self, mark: str = "") -> str | None:
        if self.all and (self.worker is not None or self.topic is not None):
            return f"only one of {mark}all and {mark}{'topic' if self.worker is None else 'worker'}"
        if self.worker is not None and self.topic is not None:
            return f"only one of {mark}worker and {mark}topic"
        if self.partition is not None and self.topic is None:
            return "a partition belongs to a topic: name the topic too"
        return None

    def touches(self, context: Context) -> frozenset[str]:
        if self.worker is not None and context.supervisor.process(self.worker).launch.kind == "engine":
            raise BadParams(f"{self.worker} reads nothing itself: pause a worker, a topic, or all")
        if self.topic is not None:
            check_read(context, self.topic, self.partition)
        return frozenset({"reading"})


def check_read(context: Context, topic: str, partition: int | None) -> None:
    if topic not in context.config.kafka.topics:
        read = ", ".join(context.config.kafka.topics)
        raise BadParams(f"this fleet does not read topic {printable_name(topic)}; it reads {read}")
    known = context.partitions(topic)
    if partition is not None and known and partition not in known:
        raise BadParams(f"topic {topic} has no partition {partition}; it has {number_of(len(known), 'partition')}")


class PauseReading(ScopedOperation, rpc="pause", for_all_hosts=True, limit_seconds=BATCH_SECONDS):
    """Pause a worker, a sinker, a topic, a partition or everything until `kctl resume`.

    Workers stay in their group and keep their partitions. Sinkers still handle stored messages of a paused topic. The
    pause survives rebalances and restarts of workers and of the master. `kctl status` shows who paused what, and when.
    With several hosts, `--topic` applies to all hosts, unless you pass `--host`. `--all` applies to this host only.
    For all hosts, add `--host all`.

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
        before = context.pauses.all()
        # Stored before it is sent, so that it also applies to a process that starts in between.
        made = context.pauses.add(self.worker, self.topic, self.partition, caller.name)
        carried_out = await context.send_all_pauses(self.worker, report, before)
        return f"{made.what} is paused; {carried_out}", {"paused": [made.scope() | {"worker": made.worker}]}
