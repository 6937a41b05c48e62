"""The typed result of one poll of groups, `ClusterReading`. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import KctlError
from kctl.kafka.client.layout import Partition
from kctl.kafka.groups import ListedGroup
from kctl.kafka.protocol.committed_bytes import GroupOffsets

PARTS = ("groups", "committed", "members", "offsets")


@dataclass(slots=True)
class ClusterReading:
    """One poll's answers. What is missing from a part was not answered this time, but for what `is_listed_in_full`
    reports.

    `errors` names the parts that failed in whole or for one broker, with the reason.
    """

    groups: dict[str, ListedGroup] = field(default_factory=dict)
    is_listed_in_full: bool = True
    """Whether every broker has listed its groups: then one that is missing does not exist, unless it is `unclear`."""
    unclear: set[str] = field(default_factory=set)
    """Groups that no broker has just now, and that may be there all the same: their coordinator is just moving."""
    members: dict[str, int] = field(default_factory=dict)
    assigned: dict[str, tuple[tuple[str, Mapping[str, tuple[int, ...]]], ...]] = field(default_factory=dict)
    """Of groups that are read by name, each member's client id and partitions by topic. Missing during a rebalance:
    the coordinator of a classic group reports no assignment then."""
    committed: dict[str, GroupOffsets] = field(default_factory=dict)
    """By group; of a share group, the offset below which all is done. What is left out is not committed."""
    elsewhere: dict[str, GroupOffsets] = field(default_factory=dict)
    """Offsets of groups in topics of another cluster: nothing is asked about their logs here."""
    read_at: dict[str, float] = field(default_factory=dict)
    """When the offsets of checkpoints were read; those of Kafka's groups are read in the poll."""
    share_lag: dict[str, dict[Partition, int]] = field(default_factory=dict)
    """Lag of share groups: the broker itself counts what is not done yet."""
    end: dict[Partition, int] = field(default_factory=dict)
    stable_end: dict[Partition, int] = field(default_factory=dict)
    """Last stable offsets of partitions that are read by groups that read committed records alone."""
    high_watermark: dict[Partition, int] = field(default_factory=dict)
    """Ends of logs whose `end` is the last stable offset."""
    start: dict[Partition, int] = field(default_factory=dict)
    """Log start offsets; not in each poll, unless that is asked for."""
    unknown: set[Partition] = field(default_factory=set)
    """Partitions that do not exist, or not any more."""
    unanswered: dict[Partition, str] = field(default_factory=dict)
    """Partitions with an error of their own, such as one without a leader, by the broker's name for it."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """Topic ids (KIP-516); a topic that is deleted and recreated has another. Old brokers have none."""
    partitions: dict[str, int] = field(default_factory=dict)
    """Number of partitions of each topic that groups read."""
    missing_topics: tuple[str, ...] = ()
    """Topics that are wanted in any case, and do not exist."""
    unclear_topics: set[str] = field(default_factory=set)
    """Topics that brokers could not describe just now; they exist nevertheless."""
    errors: dict[str, str] = field(default_factory=dict)

    def failed(self, part: str, why: object) -> None:
        self.errors.setdefault(part, str(why))

    def doubt(self, unclear: Mapping[str, KctlError | None]) -> None:
        """Marks these groups as `unclear`, each with the error of its coordinator."""
        for name, error in unclear.items():
            self.unclear.add(name)
            if error is not None:
                for part in ("groups", "committed", "members"):
                    self.failed(part, error)

    def failures(self) -> dict[str, str]:
        """Returns `errors`, with those of single partitions among the `offsets`."""
        if not self.unanswered or "offsets" in self.errors:
            return self.errors
        (topic, partition), error = next(iter(self.unanswered.items()))
        return self.errors | {"offsets": f"{topic}-{partition}: {error}"}
