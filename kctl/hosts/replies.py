"""What one host answers of its own agents to another master: their replies as they are, which the asking master
reduces together with its own."""

from __future__ import annotations

from msgspec import Raw, Struct, field

from kctl.rows.verdict import Verdict
from kctl.rpc.fan_out import Failed
from kctl.status import Assessment


class AgentReply(Struct, frozen=True):
    """The reply of an agent."""

    sender: str = field(name="from")
    age_seconds: float
    result: Raw


class HostReplies(Struct, frozen=True):
    """All replies of a host to one command; `cluster`, `group`, `host` and `incarnation` show who has answered."""

    cluster: str
    group: str
    host: str
    incarnation: int
    answers: tuple[AgentReply, ...] = ()
    failed: tuple[Failed, ...] = ()
    stopped: tuple[str, ...] = ()
    age_seconds: float = 0.0
    """Age of `status`."""
    status: Raw = Raw(b"null")
    """With `status`: what the host answers to it; with `workers` its processes as their supervisor sees them, and with
    `offset_checker` how the partitions are that they read."""
    verdict: Verdict | None = None
    """How the host is doing; None with `status`, which holds it."""


class JudgedPartitions(Struct, frozen=True):
    """The partitions that workers of this host read, by topic and number, and how they are."""

    rows: tuple[tuple[str, int, Assessment], ...] = ()
