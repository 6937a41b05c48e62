"""Statuses and assessments of partitions and groups."""

from dataclasses import dataclass
from enum import StrEnum

from kctl_agent.replies.encode import fields_of
from kctl_agent.rpc.wire import JsonObject


class Status(StrEnum):
    """Statuses from best to worst. A group has the worst status of its partitions."""

    ELSEWHERE = "elsewhere"
    """A worker of another host reads the partition, and that host judges it."""
    IDLE = "idle"
    OK = "ok"
    PAUSED = "paused"
    STARTING = "starting"
    REBALANCING = "rebalancing"
    UNKNOWN = "unknown"
    WARN = "warn"
    REWIND = "rewind"
    STALLED = "stalled"
    STOPPED = "stopped"
    LOSING = "losing"

    @property
    def severity(self) -> int:
        return NUMBERS[self]


STATUSES = tuple(Status)
NUMBERS = {status: number for number, status in enumerate(STATUSES)}  # numbers rise with the severity


@dataclass(frozen=True, slots=True)
class Assessment:
    """The status of a partition or a group, with its reason. None means unknown."""

    status: Status
    reason: str
    """The reason in words, with the numbers behind it."""
    lag_seconds: float | None = None
    """The time lag: how long the oldest pending message can have waited at most; 0 if no message is pending."""
    growth_per_second: float | None = None
    """Growth of the lag in messages per second, over the window; negative while it falls."""
    catchup_seconds: float | None = None
    """Seconds until the lag is 0 at this pace; 0 without lag, None while it does not fall."""
    oldest_unhandled_seconds: float | None = None
    """The age of the oldest unhandled message: in Kafka, in the storage, in a handler, or waiting for a retry."""

    def to_json(self) -> JsonObject:
        return {**fields_of(self), "status": self.status.value}


UNKNOWN = Assessment(Status.UNKNOWN, "it has not been assessed yet")
