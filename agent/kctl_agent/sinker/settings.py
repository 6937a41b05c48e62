"""The settings of a sinker: one JSON object on the first line of its stdin.

The control plane has checked ranges and names already; here only the shape is made certain.
"""

from __future__ import annotations

import json
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kctl_agent.process.bootstrap import fitting
from kctl_agent.replies.workers import Scope
from kctl_agent.rpc.operations import scope_of

__all__ = ["SinkerSettings", "parse"]


@dataclass(frozen=True, slots=True)
class SinkerSettings:
    """The settings of one sinker. `storage` stays a mapping: `kctl_agent.storage.open_storage` knows its keys."""

    name: str
    run_dir: Path
    scratch_dir: Path
    import_dir: Path
    """Where the handler's module is searched first: the folder of kctl.toml."""
    log_level: str
    handler: str
    batch_size: int
    batch_wait_seconds: float
    lease_seconds: float
    max_tries: int
    retry_backoff_seconds: float
    handler_timeout_seconds: float
    ordered: bool
    storage: dict[str, Any]
    batch_bytes: int = 16 << 20
    """The most bytes, as stored, that are claimed at a time; one block at least."""
    paused: tuple[Scope, ...] = ()
    """Partitions and topics that are paused; while there are any the sinker claims nothing."""

    @property
    def owner(self) -> str:
        """The name of this sinker as owner of claims in the storage. Of one owner never two processes live: run_dir has
        one master, and one socket of each name; fleets that share a storage differ in host or run_dir."""
        return f"{socket.gethostname()}:{self.run_dir}/{self.name}"


def parse(line: str) -> SinkerSettings:
    """Parses settings from the first line of stdin. Raises BootstrapError that names what is missing or unknown."""
    with fitting("sinker"):
        given = json.loads(line)
        paths = {key: Path(given[key]) for key in ("run_dir", "scratch_dir", "import_dir")}
        paused = tuple(map(scope_of, given.get("paused", ())))
        return SinkerSettings(**{**given, **paths, "paused": paused})
