"""The scope of `pause` and `resume`: a worker, a topic, a partition, or everything."""

from __future__ import annotations

from kctl.master.operations.fleet_operation import Context, FleetOperation
from kctl_agent.errors import BadParams
from kctl_agent.rpc.messages import number_of, printable_name
from kctl_agent.rpc.params import param


class ScopedOperation(FleetOperation, shared_by_hosts="topic"):
    """At most one of worker, topic (with or without partition), all."""

    worker: str | None = param("only this worker or sinker; not the engine", metavar="NAME", default=None)
    topic: str | None = param("only this topic", metavar="NAME", default=None)
    partition: int | None = param("only this partition of the topic", metavar="N", least=0, default=None)
    all: bool = param("everything, including sinkers", default=False)

    def problem(self, mark: str = "") -> str | None:
        if self.all and (self.worker is not None or self.topic is not None):
            return f"only one of {mark}all and {mark}{'topic' if self.worker is None else 'worker'}"
        if self.worker is not None and self.topic is not None:
            return f"only one of {mark}worker and {mark}topic"
        if self.partition is not None and self.topic is None:
            return "a partition belongs to a topic: name it too"
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
