"""Where the user's transform is imported from, by the driver and by executors."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kctl.config.load import load
from kctl.master.launch import worker_settings
from kctl_agent.spark.conf import configuration
from kctl_agent.spark.settings import SparkSettings
from kctl_agent.worker.query.transform import load_transform
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
    """Of a worker that has its own."""
    path = folder / "kctl.toml"
    path.write_text(f'{TOML}transform = "{transform}"\n')
    given = worker_settings(load(path, {}), "worker-0", [])
    given["spark"] |= spark
    found = parse(json.dumps(given)).spark
    assert found is not None
    return found


def test_a_transform_is_found_beside_the_configuration_whatever_the_working_directory_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside_the_file.py").write_text("def clean(frame):\n    return ['cleaned', frame]\n")
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "path", list(sys.path))
    of_worker = settings(tmp_path).pipeline

    transform: Any = load_transform("beside_the_file:clean", of_worker.import_dir)

    assert transform(1) == ["cleaned", 1]


def test_executors_look_for_a_transform_where_the_driver_did_and_never_in_their_working_directory(
    tmp_path: Path,
) -> None:
    plain = configuration(driver(tmp_path))
    given = {"spark.executorEnv.PYTHONPATH": "/srv/modules"}
    transforming = configuration(driver(tmp_path, transform="cleaning:clean", conf=given))

    assert plain["spark.executorEnv.PYTHONSAFEPATH"] == transforming["spark.executorEnv.PYTHONSAFEPATH"] == "1"
    assert "spark.executorEnv.PYTHONPATH" not in plain
    assert transforming["spark.executorEnv.PYTHONPATH"] == os.pathsep.join((str(tmp_path), "/srv/modules"))
