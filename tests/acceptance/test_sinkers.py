"""Kafka -> Spark -> storage -> sinkers -> handler: the handler gets every message."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.shows("`kctl demo --for` exits with 0 only if every message is stored exactly once")
@pytest.mark.parametrize(
    ("storage", "sinkers"),
    [
        pytest.param("file", 2, marks=pytest.mark.long),
        pytest.param("redis", 2, marks=pytest.mark.long),
        ("directly", 0),
    ],
)
def test_everything_that_is_produced_is_handled_once(storage: str, sinkers: int, short_dir: Path) -> None:
    if storage == "redis" and shutil.which("redis-server") is None:
        pytest.skip("there is no redis-server on the PATH")
    options = ("--storage", storage, "--sinkers", str(sinkers), "--workers", "1", "--partitions", "3", "--rate", "1000")

    done = subprocess.run(
        [sys.executable, "-m", "kctl", "demo", "--for", "5", "-o", "json", "--dir", str(short_dir / "d"), *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["handled"] == summary["stored"] == summary["produced"] > 0
    nothing = ("lost", "duplicated", "handled_again", "dead")
    assert {name: summary[name] for name in nothing} == dict.fromkeys(nothing, 0)
