"""The settings of a fleet: `sections` is the one table, `load` reads and checks, `reference` documents."""

from __future__ import annotations

from kctl.config.load import check_together, load, variable
from kctl.config.sections import Collect, Config, Fleet, Http, Kafka, Log, Spark, Storage, Workers

__all__ = [
    "Collect",
    "Config",
    "Fleet",
    "Http",
    "Kafka",
    "Log",
    "Spark",
    "Storage",
    "Workers",
    "check_together",
    "load",
    "variable",
]
