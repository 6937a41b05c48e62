"""The settings of a sinker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kctl_agent.process.bootstrap import ProcessSettings, decoded, fitting


@dataclass(frozen=True, slots=True)
class SinkerSettings(ProcessSettings):
    """The settings of one sinker, which claims nothing while anything is paused."""

    import_dir: Path
    """Where the handler's module is searched first: the folder of kctl.toml."""
    handler: str
    batch_size: int
    batch_wait_seconds: float
    lease_seconds: float
    max_tries: int
    retry_backoff_seconds: float
    handler_timeout_seconds: float
    ordered: bool
    storage: dict[str, Any]
    owner: str
    """The name of this sinker as owner of claims in the storage. Two processes with one owner never run at a time."""
    batch_bytes: int = 16 << 20
    """The most bytes, as stored, that are claimed at a time; one block at least."""


def parse(line: str) -> SinkerSettings:
    """Parses settings from the first line of stdin. Raises BootstrapError that names what is missing or unknown."""
    with fitting("sinker"):
        given = decoded(line)
        return SinkerSettings(**{**given, "import_dir": Path(given["import_dir"])})
