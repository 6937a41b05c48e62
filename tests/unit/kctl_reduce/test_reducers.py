from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kctl.reduce.base import Answer
from tests.replies import reduced_json

block_size = partial(reduced_json, "block_size")


def storage(identity: str, pending: int | None = 1, **more: Any) -> dict[str, Any]:
    return {"storage": identity, "pending": pending, "processing": 0, "dead": 0, "bytes": 10, "limit": None, **more}


def member(generation: int, leader: str, **more: Any) -> dict[str, Any]:
    return {"member_id": "m", "generation": generation, "leader": leader, "is_leader": False, "partitions": [], **more}


def test_different_storages_are_summed_and_each_reason_why_one_is_full_is_given_once() -> None:
    answers = [
        Answer(
            "a", storage("file:/a", 100, limit=1000, delayed=3, free_bytes=70, oldest_seconds=3.0, full="no space"), 0.0
        ),
        Answer(
            "b", storage("file:/b", 30, limit=500, delayed=4, free_bytes=60, oldest_seconds=9.0, full="its limit"), 0.0
        ),
        Answer("c", storage("file:/c", 0, limit=500, delayed=0, full="no space"), 0.0),
    ]

    known = {name: value for name, value in block_size(answers, None).items() if value is not None}

    assert known == {
        "pending": 130,
        "delayed": 7,
        "processing": 0,
        "dead": 0,
        "bytes": 30,
        "limit": 2000,
        "oldest_seconds": 9,
        "free_bytes": 60,
        "full": "its limit; no space",
    }
    assert set(block_size([], None).values()) == {None}, "without answers the storage is unknown, not empty"


def test_a_table_that_workers_share_is_counted_once_and_tables_are_not_summed() -> None:
    old, new = ({"version": version, "rows": 10 * version, "files": 2, "small_files": 1} for version in (3, 4))
    shared = [
        Answer("worker-0", storage("lake:/a", None, table=old), 2.0),
        Answer("worker-1", storage("lake:/a", None, table=new), 0.1),
    ]
    several = [Answer(name, storage(f"lake:/{name}", None, table=new), 0.0) for name in "ab"]

    assert block_size(shared, None)["table"] == new | {"last_commit_seconds": None}
    assert "table" not in block_size(several, None)


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        ([member(3, "one-old", member_id="one-new", is_leader=True), member(3, "one-old")], ("one-new", 3, True)),
        ([member(3, "id-0"), member(4, "id-1")], (None, 4, False)),
        ([member(3, "id-0"), member(3, "id-1")], (None, 3, False)),
    ],
    ids=["a static leader that was started again", "different generations", "different leaders"],
)
def test_members_agree_on_one_leader_of_one_generation(
    members: list[dict[str, Any]], expected: tuple[str | None, int, bool]
) -> None:
    answers = [Answer(f"worker-{number}", each, 0.0) for number, each in enumerate(members)]

    result = reduced_json("member_leader", answers)

    assert (result["leader"], result["generation"], result["agreed"]) == expected


def test_brokers_are_the_union_by_node_id_and_the_newest_answer_wins() -> None:
    answers: list[Answer[dict[str, Any]]] = [
        Answer("worker-0", {"rows": [{"node_id": 1, "host": "old"}, {"node_id": 10, "host": "old"}]}, 5.0),
        Answer("worker-1", {"rows": [{"node_id": 1, "host": "new"}, {"node_id": 2, "host": "old"}]}, 0.1),
        Answer("worker-2", {}, 0.1),
    ]

    rows = reduced_json("metadata_brokers", answers)["rows"]

    assert [(row["node_id"], row["host"]) for row in rows] == [(1, "new"), (2, "old"), (10, "old")]
