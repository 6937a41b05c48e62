"""A host's unchanged agent replies for another master, which reduces them together with its own."""

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
    """All replies of a host to one command; `cluster`, `group`, `host` and `incarnation` identify it."""

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
    """With `status`: the host's answer to it; with `workers` its processes as their supervisor sees them; with
    `offset_checker` the state of the partitions that they read."""
    verdict: Verdict | None = None
    """The host's verdict; None with `status`, which contains it."""


class JudgedPartitions(Struct, frozen=True):
    """The partitions that this host's workers read, by topic and number, and their state."""

    rows: tuple[tuple[str, int, Assessment], ...] = ()
