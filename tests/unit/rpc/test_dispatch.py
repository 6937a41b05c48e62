from __future__ import annotations

import json
import logging
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.rpc.client import Failure, Reply, reply_of
from kctl_agent.errors import NotReady, PathError, StorageError
from kctl_agent.rpc.commands import COMMANDS, AgentCommand
from kctl_agent.rpc.dispatch import Dispatcher, FaultCounters
from kctl_agent.rpc.messages import reply_ok
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import HEADER_BYTES, MAX_REPLY_BYTES, JsonObject, encode

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
    reply = ask(dispatcher_with(snapshot), snapshot.published_at + 0.4, method="getKafkaLag")

    assert (reply.id, reply.sender) == ("7f", "worker-0")
    assert reply.age_seconds == pytest.approx(0.4)
    assert len(reply.result["rows"]) == 2


def test_an_age_is_never_negative(snapshot: Snapshot) -> None:
    assert ask(dispatcher_with(snapshot), snapshot.published_at - 0.001, method="getKafkaLag").age_seconds == 0.0


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
    "method", ["getNothing", "kafka_lag", "__class__", "answer", "getKafkaLag ", "GETKAFKALAG", "onKafkaLag", "\x00"]
)
def test_a_method_that_is_not_in_the_table_is_unknown_whatever_it_names(method: str, snapshot: Snapshot) -> None:
    reply = ask(dispatcher_with(snapshot), method=method)

    assert reply.error is not None
    assert (reply.id, reply.error.code, reply.error.retriable) == ("7f", "unknown_method", False)


def test_a_method_is_repeated_only_short_and_plain(snapshot: Snapshot) -> None:
    error = refusal(dispatcher_with(snapshot), method="get\x1b[2J" + "x" * 5000)

    assert "\x1b" not in error.message
    assert len(error.message) < 120


def test_a_parameter_that_a_command_does_not_take_is_rejected(snapshot: Snapshot) -> None:
    error = refusal(dispatcher_with(snapshot), method="getPing", params={"x": 1})

    assert error.code == "bad_params"


def test_a_frame_that_is_not_a_request_is_rejected_with_its_id(snapshot: Snapshot) -> None:
    reply = ask(dispatcher_with(snapshot), method=None)

    assert reply.error is not None
    assert (reply.id, reply.error.code) == ("7f", "bad_request")


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
    "result", [{"lag": math.nan}, {"lag": object()}, {"lag": {1, 2}}], ids=["nan", "object", "set"]
)
def test_an_answer_that_cannot_be_sent_is_a_failure_of_the_command(result: JsonObject, snapshot: Snapshot) -> None:
    error = refusal(dispatcher_with(snapshot, AgentCommand("odd", lambda *_: result, "")), method="getOdd")

    assert error.code == "command_failed"


def test_an_answer_above_the_limit_is_rejected_with_the_number(snapshot: Snapshot) -> None:
    huge = AgentCommand("huge", lambda *_: {"text": "x" * MAX_REPLY_BYTES}, "")

    error = refusal(dispatcher_with(snapshot, huge), method="getHuge")

    assert error.code == "frame_too_large"
    assert str(MAX_REPLY_BYTES) in error.message


def test_a_flood_of_one_failure_is_counted_and_not_a_flood_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    faults = FaultCounters(LOG, "worker-0")

    for _ in range(1000):
        faults.note("a malformed frame")

    assert faults.counts["a malformed frame"] == 1000
    assert len(caplog.records) == 10
