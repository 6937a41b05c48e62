from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kctl_agent.spark.class_archive import archive_path, fingerprint, is_private, java_options, recording


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "with a space"
    monkeypatch.setattr(sys, "prefix", str(place))
    return place


def recorded() -> None:
    archive_path().parent.mkdir(parents=True)
    archive_path().touch(mode=0o600)


def test_nothing_is_added_where_nothing_was_recorded(environment: Path) -> None:
    assert java_options("-Xss4m") == ""


def test_the_archive_of_the_environment_is_named_and_quoted(environment: Path) -> None:
    recorded()

    assert archive_path().is_relative_to(environment)
    assert java_options("-Xss4m").startswith(f'"-XX:SharedArchiveFile={archive_path()}" ')


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/srv/own.jsa", "-Xss4m -Xshare:off"])
def test_a_setting_that_names_an_archive_or_none_is_left_alone(own: str, environment: Path) -> None:
    recorded()

    assert java_options(own) == ""


def test_another_java_uses_no_recording(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorded()
    other = tmp_path / "jdk" / "bin" / "java"
    other.parent.mkdir(parents=True)
    other.write_text("another Java")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))

    assert java_options("") == ""


def test_without_a_java_nothing_is_added(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    assert java_options("") == ""


def test_an_archive_that_others_can_write_is_not_used(environment: Path) -> None:
    recorded()
    archive_path().chmod(0o620)

    assert java_options("") == ""


def test_a_link_in_the_place_of_an_archive_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/hostname")

    assert not is_private(tmp_path / "link")


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
