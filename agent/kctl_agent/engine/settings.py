"""The settings of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from kctl_agent.process.bootstrap import ProcessSettings, decoded, fitting
from kctl_agent.spark.settings import SparkSettings


@dataclass(frozen=True, slots=True)
class EngineSettings(ProcessSettings):
    """Pauses do not apply, because an engine reads nothing."""

    spark: SparkSettings
    orphan_seconds: float


def parse(line: str) -> EngineSettings:
    with fitting("engine"):
        given = decoded(line)
        spark = SparkSettings.of(given["spark"], given["name"], given["scratch_dir"])
        return EngineSettings(**{**given, "spark": spark, "paused": ()})
