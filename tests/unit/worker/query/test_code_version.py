from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

from kctl_agent.spark.conf import configuration
from kctl_agent.worker.query.user_modules import VARIABLE, code_version
from tests.worker_settings import driver


def test_only_imports_from_the_folder_count_and_each_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("imported_of_test", "other_of_test"):
        (tmp_path / f"{name}.py").write_text("VALUE = 1\n")
    nothing = code_version(tmp_path)
    importlib.import_module("imported_of_test")
    first = code_version(tmp_path)
    (tmp_path / "other_of_test.py").write_text("VALUE = 22\n")
    same = code_version(tmp_path)
    (tmp_path / "imported_of_test.py").write_text("VALUE = 22\n")
    changed = code_version(tmp_path)
    monkeypatch.delitem(sys.modules, "imported_of_test")

    assert nothing == {}
    assert first == same
    assert first[VARIABLE] != changed[VARIABLE]


def test_executors_find_a_transform_where_the_driver_did_and_nowhere_else(tmp_path: Path) -> None:
    plain = configuration(driver(tmp_path))
    given = {"spark.executorEnv.PYTHONPATH": "/srv/modules"}
    transforming = configuration(driver(tmp_path, transform="cleaning:clean", conf=given))

    assert plain["spark.executorEnv.PYTHONSAFEPATH"] == transforming["spark.executorEnv.PYTHONSAFEPATH"] == "1"
    assert "spark.executorEnv.PYTHONPATH" not in plain
    assert transforming["spark.executorEnv.PYTHONPATH"] == os.pathsep.join((str(tmp_path), "/srv/modules"))
