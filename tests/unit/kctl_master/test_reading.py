from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kctl.errors import OperationRefused
from kctl.master.operations.context import Context
from kctl.master.pauses import Pauses
from kctl.operations import operation
from kctl_agent.errors import BadParams
from tests.configurations import loaded


@pytest.fixture
def context(tmp_path: Path) -> Context:
    absent = cast("Any", None)  # a rejected operation asks no agent
    return Context(
        loaded(tmp_path, '[kafka]\nbootstrap_servers = "b:1"\ngroup = "g"\ntopics = ["demo"]\n'),
        absent,
        absent,
        absent,
        Pauses(tmp_path / "pauses.json"),
        (),
        (),
        absent,
        partitions=partitions,
    )


def partitions(topic: str) -> frozenset[int]:
    return frozenset(range(8)) if topic == "demo" else frozenset()


@pytest.mark.parametrize(
    ("params", "refusal"),
    [
        ({"topic": "nope"}, "this fleet does not read topic nope; it reads demo"),
        ({"topic": "demo", "partition": 99}, "topic demo has no partition 99; it has 8 partitions"),
    ],
)
def test_pause_and_seek_refuse_what_is_not_read(context: Context, params: dict[str, Any], refusal: str) -> None:
    for name, given in (("pause", params), ("seek", {**params, "to": "latest"})):
        with pytest.raises(BadParams) as refused:
            operation(name).given(given).touches(context)

        assert str(refused.value) == refusal
    assert context.pauses.all() == []


def test_pause_names_options_that_exclude_each_other(context: Context) -> None:
    with pytest.raises(BadParams, match=r"^only one of all and topic$"):
        operation("pause").given({"topic": "demo", "all": True})


def test_without_a_pause_there_is_nothing_to_resume(tmp_path: Path) -> None:
    pauses = Pauses(tmp_path / "pauses.json")

    with pytest.raises(OperationRefused, match=r"^nothing is paused$"):
        pauses.remove(None, None, None)
    with pytest.raises(OperationRefused, match=r"^demo-3 is not paused"):
        pauses.remove(None, "demo", 3)


def test_pauses_that_cannot_be_read_pause_everything_until_it_is_resumed(tmp_path: Path) -> None:
    path = tmp_path / "pauses.json"
    path.write_text("")
    pauses = Pauses(path)

    [pause] = pauses.all()
    assert (pause.what, pause.by) == ("everything", f"kctl, for {path} cannot be read")
    pauses.remove(None, None, None)
    assert Pauses(path).all() == []
