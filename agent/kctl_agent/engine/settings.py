"""The settings of an engine: one JSON object on the first line of its stdin."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from kctl_agent.process.bootstrap import fitting
from kctl_agent.replies.workers import Scope
from kctl_agent.spark.settings import SparkSettings

__all__ = ["EngineSettings", "parse"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    name: str
    run_dir: Path
    scratch_dir: Path
    log_level: str
    spark: SparkSettings
    orphan_seconds: float
    """Seconds that workers may take to leave when the master is gone."""
    paused: tuple[Scope, ...] = ()
    """Always empty: an engine reads nothing."""


def parse(line: str) -> EngineSettings:
    """Parses settings from the first line of stdin. Raises BootstrapError that names what is missing or unknown."""
    with fitting("engine"):
        given = json.loads(line)
        scratch_dir = Path(given["scratch_dir"])
        return EngineSettings(
            **{
                **given,
                "run_dir": Path(given["run_dir"]),
                "scratch_dir": scratch_dir,
                "spark": SparkSettings.of(given["spark"], given["name"], scratch_dir),
                "paused": (),
            }
        )
