"""`?live=1`: the fleet is asked now, and only so many callers may do that at a time."""

from __future__ import annotations

from typing import Any

from kctl.http.source import SnapshotSource
from kctl.master.snapshot import Reduced
from kctl_agent.errors import Busy
from kctl_agent.rpc.messages import Request, Role, reducer_method

__all__ = ["Live"]

_AT_A_TIME = 8
_DEADLINE_MS = 2000


class Live:
    """Belongs to one event loop."""

    def __init__(self, source: SnapshotSource) -> None:
        self._source = source
        self._asking = 0

    async def ask(self, command: str) -> Reduced[Any]:
        """What the fleet answers to a command of `kctl.master.reduction`.

        Raises:
            Busy: so many questions are under way already.
        """
        if self._asking >= _AT_A_TIME:
            raise Busy(f"{_AT_A_TIME} live questions are under way already: ask again, or without live")
        self._asking += 1
        try:
            return await self._source.ask(
                Request(Role.EXTERNAL, command, reducer_method(command), deadline_ms=_DEADLINE_MS)
            )
        finally:
            self._asking -= 1
