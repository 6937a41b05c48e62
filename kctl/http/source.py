"""What the routes of a fleet answer from: the last snapshot, events, and live questions."""

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
    """None before the first snapshot."""
    verdicts: Verdicts
    render_metrics: Callable[[str, str], tuple[bytes, str, bool]]
    """Accept and Accept-Encoding headers -> body, content type, and whether the body is gzipped."""
    ready_metrics: Callable[[str, str], tuple[bytes, str, bool] | None]
    """The same if available at once, otherwise None."""
    history: FleetHistory
    feed: EventFeed
    ask: Callable[[Request], Awaitable[Reduced[Any]]]
    """The fleet's current answer to a request; may raise an AgentError."""
    answer: Callable[[Request], Awaitable[JsonObject]]
    """The answer of `master.sock`."""
    fleet: str = ""
    """`fleet.name`"""
    table_uri: str = ""
    """Empty unless the mode is `lake`."""
    hosts: Hosts | None = None
    """None if the fleet runs on one host."""
    for_other_host: Callable[[str, str | None, float], Awaitable[HostReplies]]
    """Replies of this host's agents, or of one worker, to a command of another host's master."""
    groups: GroupsView | None = None
    """The cluster's other groups; None if not collected."""
    operations: OperationLog | None = None
    """None: operations are not served."""
    dead_letters: Workbench | None = None
    """None: dead letters are not served."""
    settings: Callable[[], JsonObject]
    """The current settings by section, without secrets."""
    clock: Callable[[], float] = time.monotonic
    """The clock of `FleetSnapshot.taken_at`."""

    def ready(self) -> JsonObject:
        """The answer to `/readyz`. Raises NotReady if this host does not do its work."""
        found = self.verdicts.current().own_work
        if not found.level.is_ready:
            raise NotReady(f"{found.level}: {found.reason}")
        return {"status": found.level.value, "reason": found.reason}
