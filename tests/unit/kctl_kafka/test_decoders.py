"""The decoders for whole responses read the same as kafka-python, for any bytes."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeGroupsResponse
from kafka.protocol.consumer import ListOffsetsResponse, OffsetFetchResponse

from kctl.kafka.client.layout import Partition
from kctl.kafka.protocol.committed_bytes import FETCH_VERSIONS, CommittedResponses
from kctl.kafka.protocol.group_bytes import DESCRIBE_VERSIONS, CountedResponses
from kctl.kafka.protocol.offset_bytes import LIST_VERSIONS, PartitionKeys, listed
from kctl.kafka.protocol.raw import UNREADABLE
from tests.servers.broker_frames import _message

FEW = settings(max_examples=40)
Fields = list[dict[str, Any]]
NAMES = st.text(min_size=1, max_size=200)
TEXTS = st.text(max_size=200)
ERRORS = st.sampled_from([0, 0, 0, 6])


def lists_of(max_size: int = 4, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Fields]:
    return st.lists(st.fixed_dictionaries(fields), max_size=max_size)


def unique_by(name: str, lists: st.SearchStrategy[Fields]) -> st.SearchStrategy[Fields]:
    return lists.map(lambda each: list({fields[name]: fields for fields in each}.values()))


COMMITTED = lists_of(
    8,
    partition_index=st.integers(0, 300),
    committed_offset=st.one_of(st.just(-1), st.integers(0, 2**63 - 1)),
    committed_leader_epoch=st.integers(-1, 100),
    metadata=st.one_of(st.just(""), st.none(), st.text(max_size=300)),
    error_code=ERRORS,
)
PLAIN = lists_of(
    300,
    partition_index=st.integers(0, 300),
    committed_offset=st.integers(0, 2**40),
    committed_leader_epoch=st.just(0),
    metadata=st.just(""),
    error_code=st.just(0),
)  # the usual case, which is decoded in another way
FETCHED = unique_by(
    "group_id",
    lists_of(
        group_id=NAMES,
        topics=unique_by("name", lists_of(name=NAMES, partitions=st.one_of(COMMITTED, PLAIN))),
        error_code=ERRORS,
    ),
)
DESCRIBED = lists_of(
    error_code=ERRORS,
    group_id=TEXTS,
    group_state=TEXTS,
    protocol_type=TEXTS,
    protocol_data=TEXTS,
    members=lists_of(
        member_id=TEXTS,
        group_instance_id=st.one_of(st.none(), TEXTS),
        client_id=TEXTS,
        client_host=TEXTS,
        member_metadata=st.binary(max_size=300),
        member_assignment=st.binary(max_size=300),
    ),
)
INT64 = st.integers(-(2**63), 2**63 - 1)
LOGS = lists_of(
    name=NAMES,
    partitions=lists_of(
        20,
        partition_index=st.integers(0, 2**31 - 1),
        error_code=ERRORS,
        timestamp=INT64,
        offset=INT64,
        leader_epoch=st.integers(-1, 100),
    ),
)


def body(kind: Any, version: int, **fields: Any) -> bytes:
    encoded: bytes = _message(kind, fields).encode(version=version)
    return encoded


def fetched(groups: Fields, version: int = 9) -> bytes:
    return body(OffsetFetchResponse, version, groups=groups)


def described(groups: Fields, version: int = 5) -> bytes:
    return body(DescribeGroupsResponse, version, groups=groups)


def read(responses: CommittedResponses, data: bytes) -> dict[str, tuple[int, dict[Partition, int]]]:
    found = responses.read(data)
    for _, committed in found.values():
        assert len({topic for topic, _ in committed.topics}) == len(committed.topics)
    return {name: (code, dict(committed.items())) for name, (code, committed) in found.items()}


def expected(groups: Fields) -> dict[str, tuple[int, dict[Partition, int]]]:
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


def moved(groups: Fields, by: int) -> Fields:
    def later(each: dict[str, Any]) -> dict[str, Any]:
        return each | {"committed_offset": max(min(each["committed_offset"] + by, 2**63 - 1), -1)}

    def of_topic(topic: dict[str, Any]) -> dict[str, Any]:
        return topic | {"partitions": [later(each) for each in topic["partitions"]]}

    return [group | {"topics": [of_topic(topic) for topic in group["topics"]]} for group in groups]


@FEW
@given(FETCHED, st.sampled_from(FETCH_VERSIONS))
def test_committed_offsets_are_read_as_kafka_python_reads_them(groups: Fields, version: int) -> None:
    assert read(CommittedResponses(), fetched(groups, version)) == expected(groups)


@FEW
@given(FETCHED, st.integers(-(2**40), 2**40), FETCHED)
def test_one_response_after_the_other_is_read_as_if_it_were_the_first(groups: Fields, by: int, other: Fields) -> None:
    responses = CommittedResponses()

    for each in (groups, moved(groups, by), groups, other, moved(other, by)):
        assert read(responses, fetched(each)) == expected(each)


@FEW
@given(DESCRIBED, st.sampled_from(DESCRIBE_VERSIONS), st.one_of(st.none(), TEXTS))
def test_members_are_counted(groups: Fields, version: int, message: str | None) -> None:
    has_message = version >= 6
    groups = [group | ({"error_message": message} if has_message else {}) for group in groups]

    assert CountedResponses().read(described(groups, version), version) == [
        (group["group_id"], group["error_code"], message if has_message else None, len(group["members"]))
        for group in groups
    ]


@FEW
@given(DESCRIBED, st.data())
def test_counts_of_one_response_do_not_affect_the_next(groups: Fields, data: st.DataObject) -> None:
    responses = CountedResponses()

    for _ in range(4):
        whole = described(data.draw(st.lists(st.sampled_from(groups), max_size=6)) if groups else [])
        assert responses.read(whole, 5) == CountedResponses().read(whole, 5)


@FEW
@given(LOGS, st.sampled_from(LIST_VERSIONS))
def test_offsets_of_logs_are_read_as_kafka_python_reads_them(logs: Fields, version: int) -> None:
    version = min(version, ListOffsetsResponse.max_version)
    found = list(listed(body(ListOffsetsResponse, version, topics=logs), PartitionKeys()))

    assert [list(zip(*rows, strict=True)) for rows in found] == [
        [((log["name"], each["partition_index"]), each["offset"], each["error_code"]) for each in log["partitions"]]
        for log in logs
    ]


def test_an_entry_with_tagged_fields_is_read_like_one_without() -> None:
    entry = {"error_code": 0, "timestamp": 1, "leader_epoch": 2}
    partitions = [{**entry, "partition_index": number, "offset": 7 + number} for number in range(2)]
    plain = body(ListOffsetsResponse, 7, topics=[{"name": "orders", "partitions": partitions}])
    tagged = plain[:-3] + b"\x01\x00\x01\xff" + plain[-2:]  # the end: tags of the last entry, the topic, and the body

    assert list(listed(tagged, PartitionKeys())) == list(listed(plain, PartitionKeys()))


@FEW
@given(FETCHED.filter(bool), DESCRIBED.filter(bool), st.data())
def test_a_response_that_is_cut_off_is_rejected(groups: Fields, others: Fields, data: st.DataObject) -> None:
    committed, counted = CommittedResponses(), CountedResponses()
    readers: list[tuple[bytes, Callable[[bytes], object]]] = [
        (fetched(groups), committed.read),
        (described(others), lambda body: counted.read(body, 5)),
    ]
    for whole, read in readers:
        for _ in range(2):
            with pytest.raises(UNREADABLE):
                read(whole[: data.draw(st.integers(0, len(whole) - 2))])
            read(whole)


@given(st.binary(max_size=200))
def test_other_bytes_are_rejected_or_read_to_the_end(data: bytes) -> None:
    for read in (
        CommittedResponses().read,
        lambda data: CountedResponses().read(data, 5),
        lambda data: list(listed(data, PartitionKeys())),
    ):
        with suppress(*UNREADABLE):
            read(data)
