"""`ClusterReading`, the typed result of one poll of groups. No I/O."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kctl.errors import KctlError
from kctl.kafka.client.layout import Partition
from kctl.kafka.groups import ListedGroup
from kctl.kafka.protocol.committed_bytes import GroupOffsets

PARTS = ("groups", "committed", "members", "offsets")


@dataclass(slots=True)
class ClusterReading:
    """The answers of one poll. If no broker answered for a group or partition, its entry is missing. For `groups`,
    see `is_listed_in_full`. `errors` has the reason for each failed part of the poll (see `PARTS`)."""

    groups: dict[str, ListedGroup] = field(default_factory=dict)
    is_listed_in_full: bool = True
    """Whether every broker has listed its groups. Then a missing group does not exist, unless it is `unclear`."""
    unclear: set[str] = field(default_factory=set)
    """Groups that no broker lists but that may exist, because their coordinator is moving."""
    members: dict[str, int] = field(default_factory=dict)
    assigned: dict[str, tuple[tuple[str, Mapping[str, tuple[int, ...]]], ...]] = field(default_factory=dict)
    """Each member's client id and partitions, for groups read by name. Missing during a classic group's rebalance."""
    committed: dict[str, GroupOffsets] = field(default_factory=dict)
    """A share group's offset is the one below which all messages are processed."""
    elsewhere: dict[str, GroupOffsets] = field(default_factory=dict)
    """Offsets in topics of another cluster, whose logs are not read here."""
    read_at: dict[str, float] = field(default_factory=dict)
    share_lag: dict[str, dict[Partition, int]] = field(default_factory=dict)
    end: dict[Partition, int] = field(default_factory=dict)
    stable_end: dict[Partition, int] = field(default_factory=dict)
    """Last stable offsets, for groups with read_committed."""
    high_watermark: dict[Partition, int] = field(default_factory=dict)
    """Log ends, if `end` is the last stable offset."""
    start: dict[Partition, int] = field(default_factory=dict)
    """Log starts. Only some polls read them."""
    unknown: set[Partition] = field(default_factory=set)
    unanswered: dict[Partition, str] = field(default_factory=dict)
    """Partition -> the broker's name of the error that only this partition has."""
    topic_ids: dict[str, str] = field(default_factory=dict)
    """Topic ids, which reveal a recreated topic (KIP-516). Old brokers have none."""
    partitions: dict[str, int] = field(default_factory=dict)
    missing_topics: tuple[str, ...] = ()
    unclear_topics: set[str] = field(default_factory=set)
    """Existing topics that brokers cannot describe now."""
    errors: dict[str, str] = field(default_factory=dict)

    def failed(self, part: str, why: object) -> None:
        self.errors.setdefault(part, str(why))

    def doubt(self, unclear: Mapping[str, KctlError | None]) -> None:
        for name, error in unclear.items():
            self.unclear.add(name)
            if error is not None:
                for part in ("groups", "committed", "members"):
                    self.failed(part, error)

    def failures(self) -> dict[str, str]:
        """Returns `errors`. If `offsets` is not in `errors`, adds the first error of `unanswered` as `offsets`."""
        if not self.unanswered or "offsets" in self.errors:
            return self.errors
        (topic, partition), error = next(iter(self.unanswered.items()))
        return self.errors | {"offsets": f"{topic}-{partition}: {error}"}
