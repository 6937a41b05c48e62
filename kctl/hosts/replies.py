"""A host's agent replies, unchanged, for another master that reduces them together with its own."""

from __future__ import annotations

from msgspec import Raw, Struct, field

from kctl.rows.verdict import Verdict
from kctl.rpc.fan_out import Failed
from kctl.status import Assessment


class AgentReply(Struct, frozen=True):
    sender: str = field(name="from")
    age_seconds: float
    result: Raw


class HostReplies(Struct, frozen=True):
    """A host's replies to one command. `cluster`, `group`, `host` and `incarnation` identify the host."""

    cluster: str
    group: str
    host: str
    incarnation: int
    answers: tuple[AgentReply, ...] = ()
    failed: tuple[Failed, ...] = ()
    stopped: tuple[str, ...] = ()
    age_seconds: float = 0.0
    status: Raw = Raw(b"null")
    """By command: `status`: the host's answer; `workers`: its processes as their supervisor sees them;
    `offset_checker`: `JudgedPartitions`."""
    verdict: Verdict | None = None


class JudgedPartitions(Struct, frozen=True):
    """The partitions that a host's workers read, by topic and number, with their state."""

    rows: tuple[tuple[str, int, Assessment], ...] = ()
