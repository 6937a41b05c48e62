"""Settings of a worker and its driver, as a master gives them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kctl.config.load import load
from kctl.master.launch import worker_settings
from kctl_agent.spark.conf import SparkSettings
from kctl_agent.worker.settings import WorkerSettings, parse

TOML = """
[kafka]
bootstrap_servers = "localhost:9092"
group = "g"
topics = ["t"]
[workers]
engine = "own"
"""


def settings(folder: Path, **pipeline: Any) -> WorkerSettings:
    path = folder / "kctl.toml"
    path.write_text(TOML)
    given = worker_settings(load(path, {}), "worker-0", [])
    given["pipeline"] |= pipeline
    return parse(json.dumps(given))


def driver(folder: Path, transform: str = "", **spark: Any) -> SparkSettings:
    """For a worker with its own driver."""
    path = folder / "kctl.toml"
    path.write_text(f'{TOML}transform = "{transform}"\n')
    given = worker_settings(load(path, {}), "worker-0", [])
    given["spark"] |= spark
    found = parse(json.dumps(given)).spark
    assert found is not None
    return found
