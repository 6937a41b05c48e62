from __future__ import annotations

from typing import Any

import pytest

from kctl.master.operations.base import Operation, operation_events


def operation(kind: str, **params: Any) -> Operation:
    return Operation(
        id="1",
        name=kind,
        params=params,
        by="root",
        uid=0,
        via="socket",
        state="done",
        started_at=1.0,
        ended_at=2.0,
        deadline_seconds=30.0,
        touches=frozenset(),
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (operation("restart", all=True, rolling=True), "restart all rolling"),
        (operation("restart", name="worker-0,worker-1", rolling=False), "restart worker-0,worker-1"),
        (operation("pause", topic="orders", partition=0), "pause topic orders partition 0"),
        (operation("seek", topic="orders", to="earliest", dry_run=True), "seek topic orders to earliest dry-run"),
        (operation("log_level", name="master", level="DEBUG"), "log-level master DEBUG"),
        (operation("drain", name="worker-0", deadline_seconds=5.0), "drain worker-0 within 5 s"),
    ],
)
def test_an_operation_is_named_as_one_would_type_it(given: Operation, words: str) -> None:
    assert given.words == words
    assert [event.text for event in operation_events(given)] == [f"{words}, by root: done"]
