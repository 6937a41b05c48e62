from __future__ import annotations

import os
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kctl_agent.spark.driver import ApplicationEnded, OwnDriver
from kctl_agent.spark.gateway import exported
from kctl_agent.spark.session import LC_ALL, UTF8, java_options


def test_the_options_of_the_user_come_last(tmp_path: Path) -> None:
    words = shlex.split(java_options(tmp_path / "with a space", "-Xss4m -XX:Tier4BackEdgeThreshold=40000"))

    assert f"-Djava.io.tmpdir={tmp_path}/with a space" in words
    assert "-XX:+ExitOnOutOfMemoryError" in words
    assert words[-2:] == ["-Xss4m", "-XX:Tier4BackEdgeThreshold=40000"]


@pytest.mark.parametrize("given", [None, "C"])
def test_children_have_utf8_and_this_process_its_own(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    monkeypatch.delenv("LC_ALL", raising=False)
    if given is not None:
        monkeypatch.setenv("LC_ALL", given)

    with exported(LC_ALL, UTF8):
        assert os.environ["LC_ALL"] == "C.UTF-8"

    assert os.environ.get("LC_ALL") == given


def session(*, is_stopped: bool) -> Any:
    context = SimpleNamespace(isStopped=lambda: is_stopped)
    return SimpleNamespace(
        sparkContext=SimpleNamespace(master="spark://one:7077", _jsc=SimpleNamespace(sc=lambda: context))
    )


def test_a_worker_whose_application_the_cluster_has_ended_ends_for_another_one() -> None:
    driver = OwnDriver(SimpleNamespace())  # type: ignore[arg-type]
    driver.session = session(is_stopped=False)
    driver.check()

    driver.session = session(is_stopped=True)
    with pytest.raises(ApplicationEnded, match="the cluster spark://one:7077 has ended this application"):
        driver.check()
