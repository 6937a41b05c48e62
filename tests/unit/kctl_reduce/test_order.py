from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.master.reduction import COMMANDS
from kctl.reduce.base import Answer, BrokerSnapshot, per_sender
from kctl.reduce.reducers import union
from kctl.rows.partitions import ResetPolicy
from kctl_agent.rpc.wire import JsonObject
from tests.partitions import Row, columns_of
from tests.replies import parsed, reduced_json

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


@given(answers=st.lists(st.builds(Answer, names, RESULTS["kafka_lag"], ages), max_size=6), cluster=clusters)
def test_lag_and_offsets_come_from_the_same_rows(answers: list[Answer[Any]], cluster: BrokerSnapshot) -> None:
    lag = reduced_json("kafka_lag", answers, cluster)
    rows = COMMANDS["offset_checker"].reduce(parsed("offset_checker", answers), cluster).of_group(0)
    remaining = [((row.topic, row.partition), row.remaining_count) for row in rows]

    known = [count for _, count in remaining if count is not None]
    assert lag["total"] == (sum(known) if known else None)
    assert [(each["topic"], each["partition"]) for each in lag["unknown"]] == [
        key for key, count in remaining if count is None
    ]
