from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.master.reduction import COMMANDS
from kctl.reduce.base import Answer, BrokerSnapshot, per_sender, union
from kctl.rows.partitions import ResetPolicy
from kctl_agent.rpc.wire import JsonObject
from tests.partitions import Row, columns_of
from tests.replies import parsed, reduced_json

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
def test_members_agree_on_one_leader(members: list[dict[str, Any]], expected: tuple[str | None, int, bool]) -> None:
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


kafka_lag = partial(reduced_json, "kafka_lag")
offset_checker = partial(reduced_json, "offset_checker")


def row(partition: int, committed: int | None, end: int | None, **more: Any) -> dict[str, Any]:
    offsets = {"start": 0, "committed": committed, "position": committed, "end": end}
    return {"topic": "orders", "partition": partition, **offsets, "generation": 1, "age_seconds": 0.5, **more}


def answer(sender: str, *rows: dict[str, Any], age: float = 0.0) -> Answer[JsonObject]:
    return Answer(sender, {"rows": list(rows)}, age)


def brokers(*partitions: tuple[int, int | None, int | None], age: float = 1.0) -> BrokerSnapshot:
    rows = (Row("orders", number, 0, at, None, end, None, None, None, age) for number, at, end in partitions)
    return BrokerSnapshot(columns_of(*rows))


def test_a_lag_is_unknown_rather_than_zero_and_never_negative() -> None:
    assert offset_checker([], None) == {"rows": []}
    assert kafka_lag([], None) == {"total": None, "unknown": [], "topics": {}, "behind_transaction": None}
    assert kafka_lag([answer("worker-0", row(0, 101, 100))], None)["total"] == 0
    result = kafka_lag([answer("worker-0", row(0, None, None, position=None))], None)
    assert (result["total"], result["topics"]) == (None, {"orders": None})
    assert result["unknown"] == [{"topic": "orders", "partition": 0}]
    [row_without_reader] = offset_checker([], brokers((0, None, 25)))["rows"]
    assert (row_without_reader["worker"], row_without_reader["remaining_count"]) == (None, 25), "that of its log"


@pytest.mark.parametrize(
    ("loses", "wins"),
    [({"generation": 4, "age_seconds": 0.1}, {"generation": 5, "age_seconds": 0.9}), ({"age_seconds": 2.0}, {})],
    ids=["the higher generation", "in one generation the newer offsets"],
)
def test_of_two_claims_on_one_partition_one_wins(loses: dict[str, Any], wins: dict[str, Any]) -> None:
    claims = [answer("worker-0", row(0, 10, 100, **loses)), answer("worker-1", row(0, 30, 100, **wins))]

    [found] = offset_checker(claims, None)["rows"]

    assert (found["worker"], found["current_offset"]) == ("worker-1", 30)


@pytest.mark.parametrize(
    ("claim", "known", "expected"),
    [
        (row(0, 10, 100, age_seconds=30.0), brokers((0, 60, 150)), (60, 150, 90, 1.0)),
        (row(0, None, 100, position=None), brokers((0, 60, 90)), (60, 100, 40, 1.0)),
        (row(0, 10, 100, age_seconds=None), brokers((0, 60, 150), age=60.0), (60, 150, 90, 60.0)),
        (row(0, None, None, position=None, age_seconds=None), None, (None, None, None, 0.7)),
    ],
    ids=["both from the newer source", "what it does not know from the older", "no age is oldest", "never fetched"],
)
def test_offsets_come_from_the_newer_source(
    claim: dict[str, Any], known: BrokerSnapshot | None, expected: tuple[float | None, ...]
) -> None:
    [found] = offset_checker([answer("worker-0", claim, age=0.7 if known is None else 0.0)], known)["rows"]

    columns = ("current_offset", "kafka_max_offset", "remaining_count", "age_seconds")
    assert tuple(found[name] for name in columns) == expected
    assert found["worker"] == "worker-0"


@pytest.mark.shows("lag without a commit follows the reset policy in every view")
@pytest.mark.parametrize(
    ("reset", "start", "position", "lag"),
    [
        (ResetPolicy.EARLIEST, 20, None, 80),
        (ResetPolicy.EARLIEST, 20, 70, 80),
        (ResetPolicy.EARLIEST, None, 70, None),
        (ResetPolicy.LATEST, 20, 70, 30),
        (ResetPolicy.LATEST, 20, None, None),
        (ResetPolicy.NONE, 20, 70, None),
    ],
)
def test_the_policy_decides_lag(reset: ResetPolicy, start: int | None, position: int | None, lag: int | None) -> None:
    claim = answer("worker-0", row(0, None, 100, start=start, position=position))
    known = Row("orders", 0, start, None, None, 100, None, None, None, 1.0)

    for brokers in (BrokerSnapshot(reset=reset), BrokerSnapshot(columns_of(known), reset=reset)):
        checked = offset_checker([claim], brokers)["rows"][0]
        assert (checked["current_offset"], checked["remaining_count"]) == (None, lag)
        assert kafka_lag([claim], brokers)["total"] == lag


REPORT = answer("report", row(0, 20, 110, generation=None), row(1, 7, None, generation=None))


def test_an_attached_application_is_the_reader_of_unread_partitions_of_the_fleets_topics_only() -> None:
    known = brokers((0, None, 100))

    rows = offset_checker([REPORT], known)["rows"]

    assert [(each["partition"], each["current_offset"], each["worker"]) for each in rows] == [
        (0, 20, "report"),
        (1, 7, "report"),
    ]
    assert kafka_lag([REPORT], known)["total"] == 110 - 20, "what the fleet does not read is not in its lag"


names = st.sampled_from(["worker-0", "worker-1", "worker-2", "worker-3"])
ages = st.sampled_from([0.0, 0.1, 0.1, 2.0])
offsets = st.none() | st.integers(0, 5)
topics = st.sampled_from(["a", "b"])
partitions = st.integers(0, 3)
lag_row = st.fixed_dictionaries(
    {
        "topic": topics,
        "partition": partitions,
        "start": offsets,
        "committed": offsets,
        "position": offsets,
        "end": offsets,
        "generation": st.none() | st.integers(1, 3),
        "age_seconds": st.none() | ages,
    }
)


def rows(row: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"rows": st.lists(row, max_size=4)})


RESULTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "kafka_lag": rows(lag_row),
    "offset_checker": rows(lag_row),
    "block_size": st.fixed_dictionaries(
        {
            "storage": st.none() | st.sampled_from(["file:/a", "file:/b"]),
            **dict.fromkeys(("pending", "delayed", "processing", "dead", "bytes", "limit", "free_bytes"), offsets),
            "full": st.none() | names,
        }
    ),
    "member_leader": st.fixed_dictionaries(
        {
            "member_id": st.none() | names,
            "generation": st.none() | st.integers(1, 3),
            "leader": st.none() | names,
            "is_leader": st.booleans(),
            "partitions": st.lists(st.fixed_dictionaries({"topic": topics, "partition": partitions}), max_size=3),
        }
    ),
    "metadata_brokers": rows(st.fixed_dictionaries({"node_id": st.integers(0, 3), "host": names})),
    "metadata_topics": rows(st.fixed_dictionaries({"topic": topics, "partition": partitions, "leader_id": offsets})),
    "workers": st.fixed_dictionaries({"name": names, "state": topics}),
    "ping": st.fixed_dictionaries({"name": names, "pid": st.integers(1, 3)}),
    "describe": st.fixed_dictionaries(
        {"methods": st.lists(st.fixed_dictionaries({"method": names, "summary": topics}), max_size=3)}
    ),
}


def of_brokers(
    topic: str, partition: int, start: int | None, committed: int | None, end: int | None, age: float
) -> Row:
    return Row(topic, partition, start, committed, None, end, None, None, None, age)


clusters = st.builds(
    BrokerSnapshot,
    st.lists(
        st.builds(of_brokers, topics, partitions, offsets, offsets, offsets, ages),
        max_size=4,
        unique_by=lambda known: (known.topic, known.partition),
    ).map(lambda rows: columns_of(*sorted(rows, key=lambda row: row[:2]))),
    reset=st.sampled_from(ResetPolicy),
)


def reduced(command: str, answers: Sequence[Answer[Any]], cluster: BrokerSnapshot) -> JsonObject:
    return COMMANDS[command].encoded(COMMANDS[command].reduce(answers, cluster))


def test_every_reducer_is_held_to_this() -> None:
    """The reducers of `union` only combine the results of these."""
    reducers = {name for name, command in COMMANDS.items() if command.reduce.__module__ != union.__module__}

    assert reducers < RESULTS.keys() <= COMMANDS.keys()


@pytest.mark.parametrize("command", sorted(RESULTS))
@settings(max_examples=25)
@given(data=st.data())
def test_order_repetition_and_grouping_of_the_answers_do_not_matter(command: str, data: st.DataObject) -> None:
    answers = parsed(command, data.draw(st.lists(st.builds(Answer, names, RESULTS[command], ages), max_size=6)))
    cluster, cut = data.draw(clusters), data.draw(st.integers(0, 6))
    repeated = answers + data.draw(st.lists(st.sampled_from(answers), max_size=3) if answers else st.just([]))
    shuffled = data.draw(st.permutations(repeated))
    left, right = per_sender(answers[:cut]), per_sender(answers[cut:])

    expected = reduced(command, answers, cluster)

    assert reduced(command, shuffled, cluster) == expected
    assert reduced(command, per_sender([*right, *left]), cluster) == expected
    assert per_sender([*left, *right]) == per_sender(answers)
