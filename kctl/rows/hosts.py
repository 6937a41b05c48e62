"""The hosts of a fleet, as one master knows them."""

from __future__ import annotations

from msgspec import Struct


class HostRow(Struct, frozen=True):
    """A host. Its `state` is `here` (the host that answers), `present`, `silent` (a member of the masters' group that
    does not answer), `gone`, `leaving` or `refused`."""

    name: str
    state: str
    url: str
    version: str = ""
    protocols: tuple[int, int] | None = None
    since: float | None = None
    """Unix seconds when it became silent or gone, as far as this master knows."""
    reason: str | None = None

    @property
    def is_missing(self) -> bool:
        """Whether the workers of this host are missing from answers for all hosts."""
        return self.state in ("silent", "gone", "refused")


class HostsAnswer(Struct, frozen=True):
    """The answer to `hosts`."""

    host: str
    """The host that answers."""
    leader: str
    protocol: int
    """The newest protocol that all hosts support."""
    rows: tuple[HostRow, ...] = ()
    age_seconds: float | None = None
    """Seconds since the coordinator of the masters' group answered; None: not yet."""
    error: str | None = None
