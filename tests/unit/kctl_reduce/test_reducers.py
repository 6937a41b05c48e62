from __future__ import annotations

from functools import partial
from typing import Any

from kctl.reduce.base import Answer
from tests.replies import reduced_json

block_size = partial(reduced_json, "block_size")
describe = partial(reduced_json, "describe")
member_leader = partial(reduced_json, "member_leader")
metadata_brokers = partial(reduced_json, "metadata_brokers")
metadata_topics = partial(reduced_json, "metadata_topics")
ping = partial(reduced_json, "ping")
workers = partial(reduced_json, "workers")


def stats(**known: int) -> dict[str, Any]:
    """The reduction of `block_size`; values not given are unknown."""
    names = (
        "pending",
        "delayed",
        "processing",
        "dead",
        "oldest_seconds",
        "bytes",
        "limit",
        "limit_bytes",
        "dead_limit",
    )
    return {**dict.fromkeys((*names, "free_bytes", "full", "error", "age_seconds")), **known}


def storage(identity: str | None, pending: int | None, **more: Any) -> dict[str, Any]:
    return {"storage": identity, "pending": pending, "processing": 0, "dead": 0, "bytes": 10, "limit": None, **more}


def member(generation: int | None, leader: str | None, **more: Any) -> dict[str, Any]:
    return {"member_id": "m", "generation": generation, "leader": leader, "is_leader": False, "partitions": [], **more}


def test_a_storage_that_workers_share_is_counted_once_and_the_newest_answer_wins() -> None:
    answers = [Answer("worker-0", storage("file:/a", 100), 2.0), Answer("worker-1", storage("file:/a", 130), 0.1)]

    assert block_size(answers, None) == stats(pending=130, processing=0, dead=0, bytes=10)


def test_different_storages_are_summed() -> None:
    answers = [
        Answer("worker-0", storage("file:/a", 100, limit=1000, delayed=3, free_bytes=70, oldest_seconds=3.0), 0.0),
        Answer("worker-1", storage("file:/b", 30, limit=500, delayed=4, free_bytes=60, oldest_seconds=9.0), 0.0),
    ]

    assert block_size(answers, None) == stats(
        pending=130, delayed=7, processing=0, dead=0, oldest_seconds=9, bytes=20, limit=1500, free_bytes=60
    )


def test_a_table_that_workers_share_is_counted_once_and_tables_are_not_summed() -> None:
    old, new = ({"version": version, "rows": 10 * version, "files": 2, "small_files": 1} for version in (3, 4))
    shared = [
        Answer("worker-0", storage("lake:/a", None, table=old), 2.0),
        Answer("worker-1", storage("lake:/a", None, table=new), 0.1),
    ]
    several = [Answer(name, storage(f"lake:/{name}", None, table=new), 0.0) for name in "ab"]

    assert block_size(shared, None)["table"] == new | {"last_commit_seconds": None}
    assert "table" not in block_size(several, None)


def test_each_reason_why_a_storage_is_full_is_given_once() -> None:
    reasons = {"file:/a": "no space", "file:/b": "its limit", "file:/c": "no space", "file:/d": None}
    answers = [Answer(identity, storage(identity, 1, full=why), 0.0) for identity, why in reasons.items()]

    assert block_size(answers, None)["full"] == "its limit; no space"


def test_a_sum_with_an_unknown_part_is_unknown() -> None:
    answers = [Answer("worker-0", storage("file:/a", 100), 0.0), Answer("worker-1", storage("file:/b", None), 0.0)]

    assert block_size(answers, None)["pending"] is None


def test_a_worker_without_a_storage_yet_does_not_make_the_others_unknown() -> None:
    answers = [Answer("worker-0", storage("file:/a", 100), 0.0), Answer("worker-1", storage(None, None), 0.0)]

    assert block_size(answers, None)["pending"] == 100


def test_without_answers_the_storage_is_unknown_not_empty() -> None:
    assert block_size([], None) == stats()


def test_a_static_leader_that_was_started_again_leads_under_its_new_id() -> None:
    answers = [
        Answer("worker-0", member(3, "one-old", member_id="one-new", is_leader=True), 0.0),
        Answer("worker-1", member(3, "one-old", member_id="two-id"), 0.0),
    ]

    result = member_leader(answers, None)

    assert (result["leader"], result["agreed"]) == ("one-new", True)


def test_members_of_different_generations_do_not_agree_and_each_shows_its_own() -> None:
    answers = [Answer("worker-0", member(3, "id-0"), 0.0), Answer("worker-1", member(4, "id-1"), 0.0)]

    result = member_leader(answers, None)

    assert (result["leader"], result["generation"], result["agreed"]) == (None, 4, False)
    assert [each["generation"] for each in result["members"]] == [3, 4]


def test_members_that_name_different_leaders_have_none() -> None:
    answers = [Answer("worker-0", member(3, "id-0"), 0.0), Answer("worker-1", member(3, "id-1"), 0.0)]

    assert member_leader(answers, None)["leader"] is None
    assert member_leader(answers, None)["agreed"] is False


def test_a_worker_that_has_not_joined_is_listed_but_does_not_count() -> None:
    answers = [Answer("worker-0", member(3, "id-0"), 0.0), Answer("worker-1", member(None, None, member_id=None), 0.0)]

    result = member_leader(answers, None)

    assert (result["leader"], result["agreed"], len(result["members"])) == ("id-0", True, 2)


def test_brokers_are_the_union_by_node_id_and_the_newest_answer_wins() -> None:
    one = {"node_id": 1, "host": "old", "port": 9092, "rack": None, "controller": False}
    answers: list[Answer[dict[str, Any]]] = [
        Answer("worker-0", {"rows": [one, {**one, "node_id": 10}]}, 5.0),
        Answer("worker-1", {"rows": [{**one, "host": "new"}, {**one, "node_id": 2}]}, 0.1),
        Answer("worker-2", {}, 0.1),
    ]

    rows = metadata_brokers(answers, None)["rows"]

    assert [(row["node_id"], row["host"]) for row in rows] == [(1, "new"), (2, "old"), (10, "old")]
