"""Which Java options a worker adds so that it starts with the classes that were recorded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kctl_agent.worker.class_archive import archive_path, java_option


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "with a space"
    monkeypatch.setattr(sys, "prefix", str(place))
    return place


def test_nothing_is_added_where_nothing_was_recorded(environment: Path) -> None:
    assert java_option("-Xss4m") == ""


def test_the_archive_of_the_environment_is_named_and_quoted(environment: Path) -> None:
    archive_path().parent.mkdir(parents=True)
    archive_path().touch()

    assert archive_path().is_relative_to(environment)
    assert java_option("-Xss4m") == f'"-XX:SharedArchiveFile={archive_path()}"'


@pytest.mark.parametrize("own", ["-XX:SharedArchiveFile=/srv/own.jsa", "-Xss4m -Xshare:off"])
def test_who_names_an_archive_or_wants_none_is_left_alone(own: str, environment: Path) -> None:
    archive_path().parent.mkdir(parents=True)
    archive_path().touch()

    assert java_option(own) == ""
