"""The settings of a sinker."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kctl_agent.process.bootstrap import ProcessSettings, decoded, fitting
from kctl_agent.schemas.formats import Formats


@dataclass(frozen=True, slots=True)
class SinkerSettings(ProcessSettings):
    """The sinker claims nothing while anything is paused."""

    import_dir: Path
    """Searched first for the handler's module: the folder of kctl.toml."""
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
    """Owns the claims. Two processes with one owner never run at the same time."""
    formats: Formats = Formats()  # noqa: RUF009 - it is immutable
    batch_bytes: int = 16 << 20
    """The most bytes to claim, as stored; at least one block is claimed."""


def parse(line: str) -> SinkerSettings:
    with fitting("sinker"):
        given = decoded(line)
        formats = Formats.of(given.get("formats"))
        return SinkerSettings(**{**given, "import_dir": Path(given["import_dir"]), "formats": formats})
