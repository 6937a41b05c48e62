from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.rpc.client import Failure, Reply, reply_of
from kctl_agent.errors import BadPayload, BadRequest
from kctl_agent.rpc.messages import (
    MAX_ID_LENGTH,
    Request,
    Role,
    check_request,
    printable_name,
    readable_id,
    reducer_method,
    reply_ok,
    wire_method,
)
from kctl_agent.rpc.wire import JsonObject, json_text

MINIMAL: dict[str, Any] = {"role": 0, "rpc": "kafka_lag", "method": "getKafkaLag"}

names = st.text(min_size=1, max_size=20)
requests = st.builds(
    Request,
    st.sampled_from(Role),
    names,
    names,
    id=st.none() | st.text(max_size=MAX_ID_LENGTH),
    params=st.dictionaries(st.text(), st.integers() | st.text(), max_size=3),
    deadline_ms=st.none() | st.integers(1, 10**9),
)


def parsed(frame: JsonObject) -> Reply:
    return reply_of(json_text(frame).encode())


@pytest.mark.parametrize(
    ("rpc", "wire", "reducer"),
    [
        ("kafka_lag", "getKafkaLag", "onKafkaLag"),
        ("ping", "getPing", "onPing"),
        ("metadata_brokers", "getMetadataBrokers", "onMetadataBrokers"),
    ],
)
def test_a_command_has_a_method_on_the_agent_and_one_on_the_master(rpc: str, wire: str, reducer: str) -> None:
    assert (wire_method(rpc), reducer_method(rpc)) == (wire, reducer)


@given(requests)
def test_a_request_survives_its_way_through_json(request: Request) -> None:
    assert Request.parse(request.to_json()) == request


def test_fields_of_a_newer_peer_are_ignored() -> None:
    assert Request.parse(MINIMAL | {"trace": "abc"}) == Request.parse(MINIMAL)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("v", 2),
        ("v", "1"),
        ("v", True),
        ("v", 1.0),
        ("role", None),
        ("role", 2),
        ("role", "0"),
        ("role", True),
        ("role", [0]),
        ("rpc", None),
        ("rpc", ""),
        ("rpc", 1),
        ("method", None),
        ("method", ""),
        ("method", ["getPing"]),
        ("id", 1),
        ("id", "x" * (MAX_ID_LENGTH + 1)),
        ("params", []),
        ("params", "a=1"),
        ("params", 0),
        ("deadline_ms", 0),
        ("deadline_ms", -1),
        ("deadline_ms", 1.5),
        ("deadline_ms", True),
    ],
)
def test_a_field_with_a_wrong_value_is_rejected_by_its_name(field: str, value: object) -> None:
    with pytest.raises(BadRequest, match=f'"{field}"'):
        check_request(MINIMAL | {field: value})


def test_a_master_s_reply_names_what_is_missing() -> None:
    failure = Failure("timeout", "no answer", retriable=True, sender="worker-1")
    frame = reply_ok(
        "7f",
        {},
        "master",
        0.1,
        complete=False,
        asked=["worker-0", "worker-1"],
        answered=["worker-0"],
        failed=[failure.to_json()],
    )

    reply = parsed(frame)

    assert not reply.complete
    assert (reply.asked, reply.answered, reply.failed) == (("worker-0", "worker-1"), ("worker-0",), (failure,))


@pytest.mark.parametrize(
    "broken",
    [
        {"id": 1},
        {"ok": None},
        {"ok": 1},
        {"result": []},
        {"result": None},
        {"from": 3},
        {"age_seconds": "old"},
        {"complete": "yes"},
        {"complete": True, "asked": "worker-0"},
        {"complete": True, "asked": [1]},
        {"complete": True, "failed": [3]},
        {"complete": True, "failed": [{"code": "timeout"}]},
        {"ok": False},
        {"ok": False, "error": "boom"},
        {"ok": False, "error": {"code": 1, "message": "x"}},
    ],
    ids=str,
)
def test_a_reply_with_a_wrong_field_is_rejected(broken: dict[str, object]) -> None:
    with pytest.raises(BadPayload):
        parsed(reply_ok("7f", {}, "worker-0", 0.4) | broken)


@given(
    st.dictionaries(
        st.sampled_from(["v", "id", "ok", "result", "from", "error", "complete", "failed"]),
        st.none() | st.integers() | st.text() | st.booleans() | st.lists(st.none()) | st.just({}),
        max_size=8,
    )
)
def test_no_object_makes_the_readers_fail_otherwise(frame: dict[str, Any]) -> None:
    for read, refusal in ((Request.parse, BadRequest), (parsed, BadPayload)):
        with contextlib.suppress(refusal):
            read(frame)
    readable_id(frame)


def test_the_id_of_a_frame_that_is_no_request_is_still_returned_if_it_can_be_read() -> None:
    assert readable_id({"id": "7f", "role": 9}) == "7f"
    assert readable_id({"id": 7}) is None
    assert readable_id({"id": "x" * (MAX_ID_LENGTH + 1)}) is None
    assert readable_id({}) is None


def test_a_name_from_the_wire_is_bounded_and_plain_before_it_is_repeated() -> None:
    assert (printable_name("getKafkaLag"), printable_name("")) == ("getKafkaLag", "(empty)")
    assert printable_name("get\x1b[31m\n<b>é") == "get??31m??b??"
    assert len(printable_name("x" * 10_000)) == 43
