"""`SnapshotSource`, the data behind a fleet's routes."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kctl.dead_letters.workbench import Workbench
from kctl.hosts.hosts import HostReplies, Hosts
from kctl.http.groups_api import GroupsView
from kctl.master.events import EventFeed
from kctl.master.history import FleetHistory
from kctl.master.operations.operation_log import OperationLog
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.master.verdict import Verdicts
from kctl_agent.errors import NotReady
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.wire import JsonObject


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotSource:
    """The events, the last snapshot, and functions that ask the agents. Belongs to the master's event loop."""

    latest: Callable[[], FleetSnapshot | None]
    verdicts: Verdicts
    metrics: Callable[[str, str], Awaitable[tuple[bytes, str, bool]]]
    """Accept and Accept-Encoding headers -> body, content type, and whether the body is gzipped."""
    history: FleetHistory
    feed: EventFeed
    ask: Callable[[Request], Awaitable[Reduced[Any]]]
    """The fleet's current answer to a request; may raise an AgentError."""
    answer: Callable[[Request], Awaitable[JsonObject]]
    fleet: str = ""
    table_uri: str = ""  # empty unless the mode is `lake`
    hosts: Hosts | None = None
    for_other_host: Callable[[str, str | None, float], Awaitable[HostReplies]]
    """Returns the replies of this host's agents, or of one worker, to a command of another host's master."""
    groups: GroupsView | None = None
    operations: OperationLog | None = None
    dead_letters: Workbench | None = None
    settings: Callable[[], JsonObject]
    clock: Callable[[], float] = time.monotonic

    def ready(self) -> JsonObject:
        """Returns the answer to `/readyz`. Raises NotReady if this host's verdict, without partitions that no host
        reads, is neither `ok` nor `degraded`."""
        found = self.verdicts.current().own_work
        if not found.level.is_ready:
            raise NotReady(f"{found.level}: {found.reason}")
        return {"status": found.level.value, "reason": found.reason}
