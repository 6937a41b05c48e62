"""Where the user's transform is imported from, by the driver and by executors."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.spark.conf import configuration
from kctl_agent.worker.query.transform import load_transform
from tests.worker_settings import driver, settings


def test_a_transform_beside_the_configuration_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_the_file.py").write_text("def clean(frame):\n    return ['cleaned', frame]\n")
    monkeypatch.chdir("/")
    monkeypatch.setattr(sys, "path", list(sys.path))
    of_worker = settings(tmp_path).pipeline

    transform: Any = load_transform("beside_the_file:clean", of_worker.import_dir)

    assert transform(1) == ["cleaned", 1]


def test_executors_find_a_transform_where_the_driver_did_and_nowhere_else(tmp_path: Path) -> None:
    plain = configuration(driver(tmp_path))
    given = {"spark.executorEnv.PYTHONPATH": "/srv/modules"}
    transforming = configuration(driver(tmp_path, transform="cleaning:clean", conf=given))

    assert plain["spark.executorEnv.PYTHONSAFEPATH"] == transforming["spark.executorEnv.PYTHONSAFEPATH"] == "1"
    assert "spark.executorEnv.PYTHONPATH" not in plain
    assert transforming["spark.executorEnv.PYTHONPATH"] == os.pathsep.join((str(tmp_path), "/srv/modules"))
