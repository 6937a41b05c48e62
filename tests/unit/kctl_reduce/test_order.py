"""For every reducer: neither the order of the answers matters, nor that one of them came twice."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.reduce import REDUCERS, Answer, ClusterFigures, ClusterPartition

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
clusters = st.none() | st.lists(
    st.builds(ClusterPartition, topics, partitions, offsets, offsets, offsets, ages),
    max_size=4,
    unique_by=lambda known: (known.topic, known.partition),
).map(lambda known: ClusterFigures(tuple(known)))


def test_every_reducer_is_held_to_this() -> None:
    assert RESULTS.keys() == REDUCERS.keys()


@pytest.mark.parametrize("command", sorted(REDUCERS))
@given(data=st.data())
def test_order_and_repetition_of_the_answers_do_not_matter(command: str, data: st.DataObject) -> None:
    answers = data.draw(st.lists(st.builds(Answer, names, RESULTS[command], ages), max_size=6))
    cluster = data.draw(clusters)
    repeated = answers + data.draw(st.lists(st.sampled_from(answers), max_size=3) if answers else st.just([]))
    shuffled = data.draw(st.permutations(repeated))

    assert REDUCERS[command](shuffled, cluster) == REDUCERS[command](answers, cluster)


@given(answers=st.lists(st.builds(Answer, names, RESULTS["kafka_lag"], ages), max_size=6), cluster=clusters)
def test_lag_and_offsets_are_told_from_the_same_rows(answers: list[Answer], cluster: ClusterFigures | None) -> None:
    lag = REDUCERS["kafka_lag"](answers, cluster)
    remaining = {
        (row["topic"], row["partition"]): row["remaining_count"]
        for row in REDUCERS["offset_checker"](answers, cluster)["rows"]
    }

    known = [count for count in remaining.values() if count is not None]
    assert lag["total"] == (sum(known) if known else None)
    assert [(each["topic"], each["partition"]) for each in lag["unknown"]] == [
        key for key, count in remaining.items() if count is None
    ]
