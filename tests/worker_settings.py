"""Settings of a worker and its driver, as a master gives them."""

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
    return _parsed(folder, TOML, pipeline=pipeline)


def driver(folder: Path, transform: str = "", **spark: Any) -> SparkSettings:
    found = _parsed(folder, f'{TOML}transform = "{transform}"\n', spark=spark).spark
    assert found is not None
    return found


def _parsed(folder: Path, toml: str, **more: dict[str, Any]) -> WorkerSettings:
    path = folder / "kctl.toml"
    path.write_text(toml)
    given = worker_settings(load(path, {}), "worker-0", [])
    for section, values in more.items():
        given[section] |= values
    return parse(json.dumps(given))
