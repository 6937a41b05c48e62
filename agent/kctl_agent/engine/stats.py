"""The snapshot that an engine publishes about itself."""

from __future__ import annotations

from dataclasses import replace

from kctl_agent.process.stats import ProcessStats
from kctl_agent.replies.workers import EngineStats
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot


class EngineProcessStats(ProcessStats):
    """An engine's state. For any thread."""

    def __init__(self, name: str, server: AgentServer, inbox: Inbox) -> None:
        super().__init__(name, server, inbox)
        self._engine: EngineStats | None = None

    def holds(self, engine: EngineStats) -> None:
        self._engine = engine

    def _snapshot(self) -> Snapshot:
        with self._lock:
            common = self._common("engine")
            # it reads nothing itself
            return replace(common, worker=replace(common.worker, rows_per_second=None, engine=self._engine))
