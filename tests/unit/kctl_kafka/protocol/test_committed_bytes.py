"""The decoder for whole responses reads the same as kafka-python, for any bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import OffsetFetchResponse

from kctl.kafka.client.layout import Partition
from kctl.kafka.protocol.committed_bytes import FETCH_VERSIONS, CommittedResponses
from kctl.kafka.protocol.raw import UNREADABLE
from tests.servers.broker_frames import _message

Groups = list[dict[str, Any]]
NAMES = st.text(min_size=1, max_size=200)
COMMITTED = st.fixed_dictionaries(
    {
        "partition_index": st.integers(0, 300),
        "committed_offset": st.one_of(st.just(-1), st.integers(0, 2**63 - 1)),
        "committed_leader_epoch": st.integers(-1, 100),
        "metadata": st.one_of(st.just(""), st.none(), st.text(max_size=300)),
        "error_code": st.sampled_from([0, 0, 0, 3]),
    }
)
PLAIN = st.builds(
    lambda number, offset: {
        "partition_index": number,
        "committed_offset": offset,
        "committed_leader_epoch": 0,
        "metadata": "",
        "error_code": 0,
    },
    st.integers(0, 300),
    st.integers(0, 2**40),
)
GROUPS = st.lists(
    st.fixed_dictionaries(
        {
            "group_id": NAMES,
            "topics": st.lists(
                st.fixed_dictionaries(
                    {
                        "name": NAMES,
                        "partitions": st.one_of(st.lists(COMMITTED, max_size=8), st.lists(PLAIN, max_size=300)),
                    }
                ),
                max_size=4,
                unique_by=lambda topic: str(topic["name"]),
            ),
            "error_code": st.sampled_from([0, 0, 0, 16]),
        }
    ),
    max_size=4,
    unique_by=lambda group: str(group["group_id"]),
)


def body(groups: Groups, version: int = 9) -> bytes:
    message = _message(OffsetFetchResponse, {"groups": groups})
    encoded: bytes = message.encode(version=version)
    return encoded


def read(responses: CommittedResponses, data: bytes) -> dict[str, tuple[int, dict[Partition, int]]]:
    found = responses.read(data)
    for _, committed in found.values():
        assert len({topic for topic, _ in committed.topics}) == len(committed.topics)
    return {name: (code, dict(committed.items())) for name, (code, committed) in found.items()}


def expected(groups: Groups) -> dict[str, tuple[int, dict[Partition, int]]]:
    return {
        group["group_id"]: (
            group["error_code"],
            {
                (topic["name"], each["partition_index"]): each["committed_offset"]
                for topic in group["topics"]
                for each in topic["partitions"]
                if each["committed_offset"] >= 0 and not each["error_code"]
            },
        )
        for group in groups
    }


def moved(groups: Groups, by: int) -> Groups:
    return [
        group
        | {
            "topics": [
                topic
                | {
                    "partitions": [
                        each | {"committed_offset": max(min(each["committed_offset"] + by, 2**63 - 1), -1)}
                        for each in topic["partitions"]
                    ]
                }
                for topic in group["topics"]
            ]
        }
        for group in groups
    ]


@given(GROUPS, st.sampled_from(FETCH_VERSIONS))
def test_committed_offsets_are_read_as_kafka_python_reads_them(groups: Groups, version: int) -> None:
    assert read(CommittedResponses(), body(groups, version)) == expected(groups)


@given(GROUPS, st.integers(-(2**40), 2**40), GROUPS)
def test_one_response_after_the_other_is_read_as_if_it_were_the_first(groups: Groups, by: int, other: Groups) -> None:
    responses = CommittedResponses()

    for each in (groups, moved(groups, by), groups, other, moved(other, by)):
        assert read(responses, body(each)) == expected(each)


@given(GROUPS, st.data())
def test_a_response_that_is_cut_off_is_rejected(groups: Groups, data: st.DataObject) -> None:
    whole, responses = body(groups), CommittedResponses()
    cut = whole[: data.draw(st.integers(0, len(whole) - 2))]
    if len(groups) == 0:
        return

    for _ in range(2):
        with pytest.raises(UNREADABLE):
            responses.read(cut)
        responses.read(whole)


@given(st.binary(max_size=200))
def test_other_bytes_are_rejected_or_read_to_the_end(data: bytes) -> None:
    with suppress(*UNREADABLE):
        CommittedResponses().read(data)
