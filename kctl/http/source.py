"""What the routes answer from: the last snapshot, what happened, and a way to ask the fleet now."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from kctl.dead_letters.workbench import Workbench
from kctl.hosts.hosts import Hosts
from kctl.hosts.replies import HostReplies
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
    """Belongs to the master's event loop."""

    latest: Callable[[], FleetSnapshot | None]
    """The last snapshot; None before the first."""
    verdicts: Verdicts
    render_metrics: Callable[[str, str], tuple[bytes, str, bool]]
    """From a scraper's Accept and Accept-Encoding headers to body, content type and whether the body is gzipped."""
    ready_metrics: Callable[[str, str], tuple[bytes, str, bool] | None]
    """The same at once, or None where it must be made first."""
    history: FleetHistory
    """The last day of the fleet."""
    feed: EventFeed
    ask: Callable[[Request], Awaitable[Reduced[Any]]]
    """What the fleet answers to a request now; may raise an AgentError."""
    answer: Callable[[Request], Awaitable[JsonObject]]
    """The same as `master.sock` answers it."""
    fleet: str = ""
    """The fleet's name (`fleet.name`)."""
    table_uri: str = ""
    """The URI of the table of mode `lake`; empty in other modes."""
    hosts: Hosts | None = None
    """The other hosts of the fleet; None: it runs on one."""
    for_other_host: Callable[[str, str | None, float], Awaitable[HostReplies]]
    """Replies of this host's agents, or of one worker, to a command, for another host's master."""
    groups: GroupsView | None = None
    """All other groups of the cluster; None: they are not collected."""
    operations: OperationLog | None = None
    """Where operations are requested; None: none are served."""
    dead_letters: Workbench | None = None
    """The messages that were given up; None: none are served."""
    settings: Callable[[], JsonObject]
    """The settings in force by section, without secrets."""
    clock: Callable[[], float] = time.monotonic
    """That of `FleetSnapshot.taken_at`."""

    def ready(self) -> JsonObject:
        """The answer to `/readyz`. Raises NotReady when this host does not do its work."""
        found = self.verdicts.current().own_work
        if not found.level.is_ready:
            raise NotReady(f"{found.level}: {found.reason}")
        return {"status": found.level.value, "reason": found.reason}
