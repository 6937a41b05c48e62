"""The decoder counts as many members as kafka-python, for any bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.admin import DescribeGroupsResponse

from kctl.kafka.protocol.group_bytes import DESCRIBE_VERSIONS, CountedResponses
from kctl.kafka.protocol.raw import UNREADABLE
from tests.servers.broker_frames import _message

TEXTS = st.text(max_size=200)
MEMBERS = st.fixed_dictionaries(
    {
        "member_id": TEXTS,
        "group_instance_id": st.one_of(st.none(), TEXTS),
        "client_id": TEXTS,
        "client_host": TEXTS,
        "member_metadata": st.binary(max_size=300),
        "member_assignment": st.binary(max_size=300),
    }
)
GROUPS = st.lists(
    st.fixed_dictionaries(
        {
            "error_code": st.sampled_from([0, 0, 16]),
            "group_id": TEXTS,
            "group_state": TEXTS,
            "protocol_type": TEXTS,
            "protocol_data": TEXTS,
            "members": st.lists(MEMBERS, max_size=4),
        }
    ),
    max_size=4,
)


def body(groups: list[dict[str, Any]], version: int) -> bytes:
    encoded: bytes = _message(DescribeGroupsResponse, {"groups": groups}).encode(version=version)
    return encoded


@given(GROUPS, st.sampled_from(DESCRIBE_VERSIONS), st.one_of(st.none(), TEXTS))
def test_members_are_counted(groups: list[dict[str, Any]], version: int, message: str | None) -> None:
    has_message = version >= 6
    groups = [group | ({"error_message": message} if has_message else {}) for group in groups]

    assert CountedResponses().read(body(groups, version), version) == [
        (group["group_id"], group["error_code"], message if has_message else None, len(group["members"]))
        for group in groups
    ]


@given(st.lists(GROUPS, min_size=1, max_size=4), st.data())
def test_responses_do_not_affect_each_other(polls: list[list[dict[str, Any]]], data: st.DataObject) -> None:
    every = [group for groups in polls for group in groups]
    responses = CountedResponses()

    for _ in range(4):
        whole = body(data.draw(st.lists(st.sampled_from(every), max_size=6)) if every else [], 5)
        assert responses.read(whole, 5) == CountedResponses().read(whole, 5)


@given(GROUPS.filter(bool), st.data())
def test_a_response_that_is_cut_off_is_rejected(groups: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = body(groups, 5)
    size = data.draw(st.integers(0, len(whole) - 2))

    with pytest.raises(UNREADABLE):
        CountedResponses().read(whole[:size], 5)
