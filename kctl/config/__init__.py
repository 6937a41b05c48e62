"""The settings of a fleet: `sections` declares them, `load` reads and checks, `schema` is for editors."""

from __future__ import annotations

from kctl.config.findings import variable
from kctl.config.load import load
from kctl.config.rules import check_together
from kctl.config.sections import (
    CollectSection,
    Config,
    FleetSection,
    HttpSection,
    KafkaSection,
    LogSection,
    SparkSection,
    StorageSection,
    WorkersSection,
)

__all__ = [
    "CollectSection",
    "Config",
    "FleetSection",
    "HttpSection",
    "KafkaSection",
    "LogSection",
    "SparkSection",
    "StorageSection",
    "WorkersSection",
    "check_together",
    "load",
    "variable",
]
