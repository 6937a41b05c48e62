from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kctl_agent.spark.class_archive import archive_path, fingerprint, is_private, java_options, recording


def test_only_the_private_archive_of_this_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "with a space"))
    assert java_options("-Xss4m") == "", "none was recorded"
    archive = archive_path()
    archive.parent.mkdir(parents=True)
    archive.touch(mode=0o600)
    (tmp_path / "link").symlink_to(archive)

    assert archive.is_relative_to(tmp_path / "with a space")
    assert java_options("-Xss4m").startswith(f'"-XX:SharedArchiveFile={archive}" ')
    assert not is_private(tmp_path / "link")
    for own in ("-XX:SharedArchiveFile=/srv/own.jsa", "-Xss4m -Xshare:off"):
        assert java_options(own) == "", "a setting that names an archive or none"
    with monkeypatch.context() as patched:
        patched.setenv("JAVA_HOME", str(tmp_path / "jdk"))
        assert java_options("") == "", "without a Java"
        (tmp_path / "jdk" / "bin").mkdir(parents=True)
        (tmp_path / "jdk" / "bin" / "java").write_text("another Java")
        assert java_options("") == ""
    archive.chmod(0o620)
    assert java_options("") == "", "others can write it"


def test_a_jar_that_has_changed_is_another_one(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"1")
    before = fingerprint([jar])

    os.utime(jar, ns=(0, jar.stat().st_mtime_ns + 1))

    assert fingerprint([jar]) != before


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
