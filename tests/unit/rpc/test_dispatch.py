from __future__ import annotations

import json
import logging
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.rpc.client import Failure, Reply, reply_of
from kctl_agent.errors import BadPayload, BadRequest, NotReady, PathError, StorageError
from kctl_agent.rpc.commands import COMMANDS, AgentCommand
from kctl_agent.rpc.dispatch import Dispatcher, FaultCounters
from kctl_agent.rpc.messages import (
    MAX_ID_LENGTH,
    Request,
    Role,
    check_request,
    readable_id,
    reply_ok,
)
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import HEADER_BYTES, MAX_REPLY_BYTES, JsonObject, encode, json_text

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


@given(requests)
def test_a_request_survives_its_way_through_json(request: Request) -> None:
    assert Request.parse(request.to_json() | {"field of a newer peer": 1}) == request


WRONG: dict[str, tuple[object, ...]] = {
    "v": (2, "1", True, 1.0),
    "role": (None, 2, "0", True, [0]),
    "rpc": (None, "", 1),
    "method": (None, "", ["getPing"]),
    "id": (1, "x" * (MAX_ID_LENGTH + 1)),
    "params": ([], "a=1", 0),
    "deadline_ms": (0, -1, 2**63, 1.5, True),
}


@pytest.mark.parametrize("field", WRONG)
def test_a_field_with_a_wrong_value_is_rejected_by_its_name(field: str) -> None:
    for value in WRONG[field]:
        with pytest.raises(BadRequest, match=f'"{field}"'):
            check_request(MINIMAL | {field: value})


def test_a_master_s_reply_names_what_is_missing() -> None:
    failure = Failure("timeout", "no answer", retriable=True, sender="worker-1")
    asked = {"asked": ["worker-0", "worker-1"], "answered": ["worker-0"], "failed": [failure.to_json()]}

    reply = parsed(reply_ok("7f", {}, "master", 0.1, complete=False, **asked))

    assert not reply.complete
    assert (reply.asked, reply.answered, reply.failed) == (("worker-0", "worker-1"), ("worker-0",), (failure,))


@pytest.mark.parametrize(
    "broken",
    [
        *({"id": 1}, {"ok": None}, {"ok": 1}, {"result": []}, {"result": None}, {"from": 3}, {"age_seconds": "old"}),
        *({"complete": "yes"}, {"complete": True, "asked": "worker-0"}, {"complete": True, "asked": [1]}),
        *({"complete": True, "failed": [3]}, {"complete": True, "failed": [{"code": "timeout"}]}),
        *({"ok": False}, {"ok": False, "error": "boom"}, {"ok": False, "error": {"code": 1, "message": "x"}}),
    ],
    ids=str,
)
def test_a_reply_with_a_wrong_field_is_rejected(broken: dict[str, object]) -> None:
    with pytest.raises(BadPayload):
        parsed(reply_ok("7f", {}, "worker-0", 0.4) | broken)


def test_the_id_of_a_frame_that_is_no_request_is_still_returned_if_it_can_be_read() -> None:
    assert readable_id({"id": "7f", "role": 9}) == "7f"
    for frame in ({"id": 7}, {"id": "x" * (MAX_ID_LENGTH + 1)}, {}):
        assert readable_id(frame) is None


LOG = logging.getLogger("kctl_agent.test")
SECRET = "/home/secret/of-the-caller"


def dispatcher_with(snapshot: Snapshot | None, *commands: AgentCommand) -> Dispatcher:
    table = COMMANDS | {command.name: command for command in commands}
    dispatcher = Dispatcher("worker-0", table, FaultCounters(LOG, "worker-0"))
    dispatcher.snapshot = snapshot
    return dispatcher


def ask(dispatcher: Dispatcher, now: float = 0.0, **frame: object) -> Reply:
    request: JsonObject = {"id": "7f", "role": 1, "rpc": "x"} | frame
    return reply_of(dispatcher.reply_to(request, now)[HEADER_BYTES:])


def refusal(dispatcher: Dispatcher, **frame: object) -> Failure:
    error = ask(dispatcher, 0.0, **frame).error
    assert error is not None
    return error


def raising(error: Exception) -> AgentCommand:
    def fail(*_: object) -> JsonObject:
        raise error

    return AgentCommand("fail", fail, "for this test")


def test_an_answer_carries_its_id_its_sender_and_its_age(snapshot: Snapshot) -> None:
    for later, age in ((0.4, 0.4), (-0.001, 0.0)):
        reply = ask(dispatcher_with(snapshot), snapshot.published_at + later, method="getKafkaLag")

        assert (reply.id, reply.sender, len(reply.result["rows"])) == ("7f", "worker-0", 2)
        assert reply.age_seconds == pytest.approx(age)


@settings(max_examples=20)
@given(
    id_=st.none() | st.text(max_size=100), result=st.dictionaries(st.text(), st.integers() | st.text()), name=st.text()
)
def test_the_reply_is_the_one_that_messages_describes(id_: str | None, result: JsonObject, name: str) -> None:
    dispatcher = Dispatcher(
        name, {"echo": AgentCommand("echo", lambda *_: result, "", needs_snapshot=False)}, FaultCounters(LOG, name)
    )
    frame: JsonObject = {"role": 1, "rpc": "echo", "method": "getEcho", "id": id_}

    reply = dispatcher.reply_to(frame, 0.0)

    assert json.loads(reply[HEADER_BYTES:]) == json.loads(encode(reply_ok(id_, result, name, 0.0))[HEADER_BYTES:])


def test_before_the_first_snapshot_only_ping_and_describe_are_answered() -> None:
    dispatcher = dispatcher_with(None)

    for command in COMMANDS.values():
        reply = ask(dispatcher, method=command.method)
        if command.name in ("ping", "describe"):
            assert reply.ok
            assert reply.age_seconds == 0.0
        else:
            assert reply.error is not None
            assert (reply.error.code, reply.error.retriable) == ("not_ready", True)


@pytest.mark.parametrize(
    "method",
    ["getNothing", "kafka_lag", "__class__", "getKafkaLag ", "GETKAFKALAG", "onKafkaLag", "get\x1b[2J" + "x" * 5000],
)
def test_a_method_that_is_not_in_the_table_is_unknown_whatever_it_names(method: str, snapshot: Snapshot) -> None:
    reply = ask(dispatcher_with(snapshot), method=method)

    assert reply.error is not None
    assert (reply.id, reply.error.code, reply.error.retriable) == ("7f", "unknown_method", False)
    assert "\x1b" not in reply.error.message
    assert len(reply.error.message) < 120


@pytest.mark.parametrize(
    "error",
    [KeyError(SECRET), RecursionError(SECRET), PathError(SECRET), StorageError(SECRET), OSError(2, "no", SECRET)],
    ids=lambda error: type(error).__name__,
)
def test_failures_are_neutral_sentences(error: Exception, snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    given = refusal(dispatcher_with(snapshot, raising(error)), method="getFail")

    assert given.code == "command_failed"
    assert given.message == "fail failed inside the agent of worker-0: its log has the cause"
    (record,) = caplog.records
    assert f"fail failed: {type(error).__name__} at test_dispatch.py:" in record.getMessage()
    assert SECRET not in caplog.text


def test_an_error_that_is_meant_for_the_caller_reaches_it(snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    error = refusal(dispatcher_with(snapshot, raising(NotReady("the shop opens at nine"))), method="getFail")

    assert (error.code, error.message) == ("not_ready", "the shop opens at nine")
    assert not caplog.records


@pytest.mark.parametrize(
    ("result", "code"),
    [
        ({"lag": math.nan}, "command_failed"),
        ({"lag": object()}, "command_failed"),
        ({"text": "x" * MAX_REPLY_BYTES}, "frame_too_large"),
    ],
    ids=["nan", "object", "large"],
)
def test_an_answer_that_cannot_be_sent_is_a_failure_of_the_command(
    result: JsonObject, code: str, snapshot: Snapshot
) -> None:
    error = refusal(dispatcher_with(snapshot, AgentCommand("odd", lambda *_: result, "")), method="getOdd")

    assert error.code == code
    assert (str(MAX_REPLY_BYTES) in error.message) == (code == "frame_too_large")


def test_a_flood_of_one_failure_is_counted_and_not_a_flood_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    faults = FaultCounters(LOG, "worker-0")

    for _ in range(1000):
        faults.note("a malformed frame")

    assert faults.counts["a malformed frame"] == 1000
    assert len(caplog.records) == 10
