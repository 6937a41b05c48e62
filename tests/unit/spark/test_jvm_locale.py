from __future__ import annotations

import os

import pytest

from kctl_agent.spark.gateway import exported
from kctl_agent.spark.session import LC_ALL, UTF8, is_utf8


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "C.UTF-8"}, True),
        ({"LANG": "C.UTF-8"}, True),
        ({"LC_CTYPE": "C.UTF-8"}, True),  # as Python itself sets it for its children
        ({"LC_CTYPE": "C.UTF-8", "LANG": "xx_XX.UTF-8"}, False),  # the machine lacks it: C for all
        ({"LC_ALL": "", "LANG": "C.UTF-8"}, True),
    ],
)
def test_whether_java_names_files_by_utf8_is_known_beforehand(environment: dict[str, str], expected: bool) -> None:
    assert is_utf8(environment) is expected


@pytest.mark.parametrize("given", [None, "C"])
def test_children_have_utf8_and_this_process_its_own(monkeypatch: pytest.MonkeyPatch, given: str | None) -> None:
    monkeypatch.delenv("LC_ALL", raising=False)
    if given is not None:
        monkeypatch.setenv("LC_ALL", given)

    with exported(LC_ALL, UTF8):
        assert is_utf8()

    assert os.environ.get("LC_ALL") == given
