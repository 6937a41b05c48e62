"""Offsets by the block: whatever a broker sends is read as kafka-python reads it, and nothing else is taken for it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import ListOffsetsResponse, OffsetFetchResponse

from kctl.kafka.flexible import UNREADABLE
from kctl.kafka.offset_bytes import FETCH_VERSIONS, LIST_VERSIONS, Keys, fetched, listed
from kctl.kafka.raw import Raw
from kctl.testing.broker_frames import _message

NAMES = st.text(min_size=1, max_size=200)
INT64 = st.integers(-(2**63), 2**63 - 1)
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
LOGS = st.lists(
    st.fixed_dictionaries(
        {
            "name": NAMES,
            "partitions": st.lists(
                st.fixed_dictionaries(
                    {
                        "partition_index": st.integers(0, 2**31 - 1),
                        "error_code": st.sampled_from([0, 0, 0, 6]),
                        "timestamp": INT64,
                        "offset": INT64,
                        "leader_epoch": st.integers(-1, 100),
                    }
                ),
                max_size=20,
            ),
        }
    ),
    max_size=4,
)


def body(kind: Any, version: int, fields: dict[str, Any]) -> bytes:
    message = _message(kind, fields)
    encoded: bytes = message.encode(version=version)
    return encoded


@given(GROUPS, st.sampled_from(FETCH_VERSIONS))
def test_committed_offsets_are_read_as_kafka_python_reads_them(groups: list[dict[str, Any]], version: int) -> None:
    found = fetched(body(OffsetFetchResponse, version, {"groups": groups}))

    assert {name: group.error_code for name, group in found.items()} == {g["group_id"]: g["error_code"] for g in groups}
    for group in groups:
        committed = found[group["group_id"]].committed
        assert len({each.topic for each in committed}) == len(committed)
        assert {(each.topic, n): o for each in committed for n, o in zip(*each[1:], strict=True)} == {
            (topic["name"], each["partition_index"]): each["committed_offset"]
            for topic in group["topics"]
            for each in topic["partitions"]
            if each["committed_offset"] >= 0 and not each["error_code"]
        }


@given(LOGS, st.sampled_from(LIST_VERSIONS))
def test_offsets_of_logs_are_read_as_kafka_python_reads_them(logs: list[dict[str, Any]], version: int) -> None:
    version = min(version, ListOffsetsResponse.max_version)
    found = list(listed(body(ListOffsetsResponse, version, {"topics": logs}), Keys()))

    assert [list(zip(*rows, strict=True)) for rows in found] == [
        [((log["name"], each["partition_index"]), each["offset"], each["error_code"]) for each in log["partitions"]]
        for log in logs
    ]


@given(GROUPS, st.data())
def test_a_response_that_is_cut_off_is_refused(groups: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = body(OffsetFetchResponse, 9, {"groups": groups})
    cut = whole[: data.draw(st.integers(0, len(whole) - 2))]

    if len(groups) == 0:
        return
    with pytest.raises(UNREADABLE):
        fetched(cut)


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_or_read_and_end(data: bytes) -> None:
    for read in (lambda: fetched(data), lambda: list(listed(data, Keys()))):
        try:
            read()
        except UNREADABLE:
            continue


def test_keys_are_made_once_and_anew_where_partitions_are_others() -> None:
    keys = Keys()

    assert keys.of("orders", (0, 1)) is keys.of("orders", (0, 1))
    assert keys.of("orders", (1, 2)) == [("orders", 1), ("orders", 2)]


def test_a_raw_request_is_the_request_but_for_its_answer() -> None:
    from kafka.protocol.consumer import ListOffsetsRequest

    request = ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[])
    raw = Raw(request)
    raw.API_VERSION = 7
    raw.with_header(correlation_id=3, client_id="kctl")

    assert (raw.API_KEY, request.API_VERSION, raw.header.correlation_id) == (2, 7, 3)
    assert raw.encode(header=True, framed=True) == request.encode(header=True, framed=True)
