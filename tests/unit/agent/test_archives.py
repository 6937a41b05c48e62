"""tests/integration/test_class_archive.py shows that a JVM uses the recorded archives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kctl_agent.spark.class_archive import recording


def test_a_recorded_archive_stands_in_its_place_and_the_oldest_of_its_kind_go(tmp_path: Path) -> None:
    for number in range(3):
        old = tmp_path / f"spark-{number}.jsa"
        old.touch()
        os.utime(old, (number, number))
    (tmp_path / "broker-0.jsa").touch()

    with recording(tmp_path / "spark-new.jsa", kept=2) as fresh:
        fresh.write_bytes(b"classes")
        (fresh.parent / "scratch").mkdir()

    assert (tmp_path / "spark-new.jsa").read_bytes() == b"classes"
    assert {each.name for each in tmp_path.iterdir()} == {"spark-new.jsa", "spark-2.jsa", "broker-0.jsa"}


def test_where_the_jvm_writes_no_archive_the_one_before_stays(tmp_path: Path) -> None:
    path = tmp_path / "spark-1.jsa"
    path.write_bytes(b"before")

    with pytest.raises(RuntimeError, match="wrote no class archive"), recording(path, kept=1):
        pass

    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"before"]
