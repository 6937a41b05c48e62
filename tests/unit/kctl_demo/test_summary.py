"""The demo's summary has what is known, and no more, when a part of the demo has ended by itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kctl.demo.audit import Audit
from kctl.demo.summary import DemoOptions, DemoProgress, has_passed, show, summary

WANTED = DemoOptions(workers=1, partitions=1, rate=10, seconds=None, storage="file", sinkers=1)
ENDED = "the broker (pid 7) has ended: signal 9, SIGKILL"
WHOLE = Audit(produced=3, stored=3, lost=0, duplicated=0, handled=3)


def test_what_nobody_can_count_any_more_is_null() -> None:
    found = summary(None, DemoProgress(), 3, 2, WANTED, ENDED)

    unknown = {"stored", "lost", "duplicated", "not_stored", "handled", "handled_again", "retried", "dead"}
    assert {found[name] for name in unknown} == {None}
    assert (found["produced"], found["not_acknowledged"], found["ended_by_itself"]) == (3, 2, ENDED)


def test_a_demo_whose_part_has_ended_has_not_passed_and_names_its_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = summary(WHOLE, DemoProgress(), 3, 0, WANTED, ENDED)
    assert not has_passed(found, WANTED)

    show(found, "table", tmp_path, is_handled=True, passed=False)
    assert capsys.readouterr().out.splitlines()[-1] == f"{ENDED}; all of the demo is kept in {tmp_path}"
    show(found, "json", tmp_path, is_handled=True, passed=False)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == found
    assert printed.err == f"kctl: all of the demo is kept in {tmp_path}\n"
