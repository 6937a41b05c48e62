"""The hosts of a fleet, as one of their masters knows them."""

from __future__ import annotations

from msgspec import Struct


class HostRow(Struct, frozen=True):
    """A host: `here` (it answers this), `present`, `silent` (a member of the group that does not answer), `gone`,
    `leaving`, `refused`."""

    name: str
    state: str
    url: str
    version: str = ""
    protocols: tuple[int, int] | None = None
    since: float | None = None
    """Unix seconds from when it has been silent or gone, as far as this master knows."""
    reason: str | None = None

    @property
    def is_missing(self) -> bool:
        """Whether its workers are not among those of all hosts."""
        return self.state in ("silent", "gone", "refused")


class HostsAnswer(Struct, frozen=True):
    """The answer to `hosts`."""

    host: str
    """The one that answers."""
    leader: str
    protocol: int
    """The newest protocol that all hosts speak."""
    rows: tuple[HostRow, ...] = ()
    age_seconds: float | None = None
    """Seconds since the coordinator of the masters' group was heard; None: it has not answered yet."""
    error: str | None = None
    """Why the rows may not be those of now."""
