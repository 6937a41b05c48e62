import json
import logging
import math
import os
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kctl.rpc.client import Failure, Reply, reply_of
from kctl_agent import __version__
from kctl_agent.errors import BadParams, BadPayload, BadRequest, NotReady, PathError, StorageError
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.describe import Param
from kctl_agent.replies.partitions import PartitionsReply, lag_of
from kctl_agent.replies.workers import CommitStats
from kctl_agent.rpc.commands import COMMANDS, AgentCommand
from kctl_agent.rpc.dispatch import Dispatcher, FaultCounters
from kctl_agent.rpc.messages import MAX_ID_LENGTH, Request, Role, check_request, is_plain_number, readable_id, reply_ok
from kctl_agent.rpc.operations import scope_of
from kctl_agent.rpc.params import check_params
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import HEADER_BYTES, MAX_REPLY_BYTES, JsonObject, encode, json_text
from tests.conftest import raising

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


def failing(error: Exception) -> AgentCommand:
    return AgentCommand("fail", raising(error), "for this test")


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
    dispatcher = Dispatcher(name, {"echo": AgentCommand("echo", lambda *_: result, "")}, FaultCounters(LOG, name))
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
    given = refusal(dispatcher_with(snapshot, failing(error)), method="getFail")

    assert given.code == "command_failed"
    assert given.message == "fail failed inside the agent of worker-0: its log has the cause"
    (record,) = caplog.records
    assert f"fail failed: {type(error).__name__} at conftest.py:" in record.getMessage()
    assert SECRET not in caplog.text


def test_an_error_that_is_meant_for_the_caller_reaches_it(snapshot: Snapshot, caplog: pytest.LogCaptureFixture) -> None:
    error = refusal(dispatcher_with(snapshot, failing(NotReady("the shop opens at nine"))), method="getFail")

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
def test_an_unsendable_answer_is_a_failure_of_the_command(result: JsonObject, code: str, snapshot: Snapshot) -> None:
    error = refusal(dispatcher_with(snapshot, AgentCommand("odd", lambda *_: result, "")), method="getOdd")

    assert error.code == code
    assert (str(MAX_REPLY_BYTES) in error.message) == (code == "frame_too_large")


def test_a_flood_of_one_failure_is_counted_and_not_a_flood_of_lines(caplog: pytest.LogCaptureFixture) -> None:
    faults = FaultCounters(LOG, "worker-0")

    for _ in range(1000):
        faults.note("a malformed frame")

    assert faults.counts["a malformed frame"] == 1000
    assert len(caplog.records) == 10


def answer(rpc: str, snapshot: Snapshot, later: float = 0.0) -> JsonObject:
    result: JsonObject = json.loads(encode(COMMANDS[rpc].answer(snapshot, {}, snapshot.published_at + later))[4:])
    return result


@pytest.mark.parametrize("rpc", ["kafka_lag", "offset_checker"])
def test_partitions_are_reported_with_every_offset_and_its_age(rpc: str, snapshot: Snapshot) -> None:
    known, unknown = answer(rpc, snapshot, later=1.0)["rows"]

    [sent] = [each for each in snapshot.replies if isinstance(each, PartitionsReply)]
    ages = {"age_seconds": pytest.approx(3.0), "stored_seconds": pytest.approx(8.0)}
    assert known == asdict(sent.rows[0]) | ages
    assert unknown == dict.fromkeys(known) | {"topic": "orders", "partition": 1, "generation": 7}
    assert answer(rpc, replace(snapshot, replies=())) == {"rows": []}
    assert lag_of(0, 131, 131, 130) == 0, "never negative"


def test_the_storage_is_named_by_its_identity_and_unknown_counts_are_null(snapshot: Snapshot) -> None:
    [sent] = [each for each in snapshot.replies if isinstance(each, StorageReply)]
    known = {name: value for name, value in asdict(sent).items() if name not in ("table", "recent_dead")}
    assert answer("block_size", snapshot) == known
    unknown = answer("block_size", replace(snapshot, replies=(StorageReply("file:/x"),)))
    assert {name: value for name, value in unknown.items() if value is not None} == {"storage": "file:/x"}


def test_of_a_table_its_counts_and_the_commits_of_the_worker_are_known_and_messages_are_not(snapshot: Snapshot) -> None:
    table = TableReply(7, 1000, 12, 10, 3.0)
    worker = replace(snapshot.worker, commits=CommitStats(2, 5))
    of_table = replace(snapshot, worker=worker, replies=(StorageReply("lake:/x", bytes=4096, table=table),))

    stored = answer("block_size", of_table, later=1.0)

    assert (stored["pending"], stored["bytes"]) == (None, 4096)
    age = stored["table"].pop("last_commit_seconds")
    assert age == pytest.approx(4.0)
    assert stored["table"] == {"version": 7, "rows": 1000, "files": 12, "small_files": 10}
    assert answer("workers", of_table)["commits"] == {"failed": 2, "retried": 5}
    uncounted = answer("block_size", replace(snapshot, replies=(StorageReply("lake:/x", table=TableReply()),)))
    assert uncounted["table"] == dict.fromkeys(("version", "rows", "files", "small_files", "last_commit_seconds"))


@pytest.mark.parametrize("rpc", ["block_size", "member_leader", "metadata_brokers", "metadata_topics"])
def test_what_is_not_known_yet_is_not_ready_rather_than_empty(rpc: str, snapshot: Snapshot) -> None:
    with pytest.raises(NotReady, match="ask again"):
        answer(rpc, replace(snapshot, replies=()))


def test_a_worker_reports_its_state_its_pace_and_its_events(snapshot: Snapshot) -> None:
    reported = answer("workers", snapshot, later=1.0)

    ages = {"state_seconds": 31.0, "uptime_seconds": 61.0, "batch_running_seconds": 5.0}
    assert {name: reported[name] for name in ages} == pytest.approx(ages)
    assert {name: reported[name] for name in ("pid", "batch_id", "rows_per_second", "waiting_for", "paused")} == {
        "pid": os.getpid(), "batch_id": 3, "rows_per_second": 133.3, "waiting_for": None, "paused": [],
    }  # fmt: skip
    ping = answer("ping", snapshot)
    assert {name: ping[name] for name in ("name", "pid", "version", "state", "batches_total")} == {
        "name": "worker-0", "pid": os.getpid(), "version": __version__, "state": "running", "batches_total": 3,
    }  # fmt: skip
    [event] = reported["events"]
    assert (event["kind"], event["from"], event["to"], event["text"]) == ("rewound", 100, 5, "the group was reset")


def test_describe_lists_every_method_itself_included(snapshot: Snapshot) -> None:
    methods = {each["rpc"]: each for each in answer("describe", snapshot)["methods"]}

    assert sorted(methods) == sorted(COMMANDS)
    assert methods["kafka_lag"] == {
        "method": "getKafkaLag",
        "rpc": "kafka_lag",
        "summary": COMMANDS["kafka_lag"].summary,
        "params": [],
        "deadline_ms": 2000,
        "changes": False,
    }


@pytest.mark.parametrize(
    ("params", "refusal"),
    [
        ({"speed": 1}, '"speed"; it takes text, count, share, flag'),
        ({"count": 1}, '"text" is missing'),
        ({"text": 1}, '"text" must be of type string'),
        ({"text": "a", "count": True}, '"count" must be of type integer'),
        ({"text": "a", "count": 1.5}, '"count" must be of type integer'),
        ({"text": "a", "share": "1"}, '"share" must be of type number'),
        ({"text": "a", "flag": 0}, '"flag" must be of type boolean'),
        ({"text": None}, '"text" must be of type string'),
        ({"\x1b[31m": 1}, r'"\?\?31m"'),
    ],
)
def test_a_parameter_the_command_does_not_take_is_rejected_by_its_name(params: JsonObject, refusal: str) -> None:
    kinds = {"count": "integer", "share": "number", "flag": "boolean"}
    taken = (Param("text", "string", "", required=True), *(Param(name, kind, "") for name, kind in kinds.items()))

    with pytest.raises(BadParams, match=refusal):
        check_params("seek", taken, params)
    check_params("seek", taken, {"text": "a", "count": 1, "share": 1, "flag": False})


@pytest.mark.shows("NaN, Infinity and numbers beyond 64 bits are rejected in every request")
@pytest.mark.parametrize("number", [10**400, -(10**400), 2**63, float("nan"), float("inf"), -float("inf")])
def test_a_parameter_must_be_a_plain_number(number: Any) -> None:
    params = (Param("n", "number", ""), Param("i", "integer", ""))

    for name in ("n", "i") if isinstance(number, int) else ("n",):
        with pytest.raises(BadParams, match="finite number"):
            check_params("c", params, {name: number})
    for field in ("since", "partition"):
        with pytest.raises(BadParams):
            scope_of({"topic": "t", "partition": 0, "by": "me", "since": 1.0, field: number})
    assert not is_plain_number(number)
