from __future__ import annotations

import os

import pytest

from kctl_agent.spark.gateway import exported
from kctl_agent.spark.session import LC_ALL, UTF8


@pytest.mark.parametrize("given", [None, "C"])
def test_children_have_utf8_and_this_process_its_own(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    monkeypatch.delenv("LC_ALL", raising=False)
    if given is not None:
        monkeypatch.setenv("LC_ALL", given)

    with exported(LC_ALL, UTF8):
        assert os.environ["LC_ALL"] == "C.UTF-8"

    assert os.environ.get("LC_ALL") == given
