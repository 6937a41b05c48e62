"""What each command answers from a snapshot: plain numbers, ages from the time given, null for what is unknown."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace

import pytest

from kctl.reduce import PartitionRow, ResetPolicy
from kctl_agent import __version__
from kctl_agent.errors import BadParams, NotReady
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.partitions import lag_of
from kctl_agent.replies.workers import CommitStats
from kctl_agent.rpc.commands import COMMANDS, AgentCommand, Param, ping_of, with_describe
from kctl_agent.rpc.operations import Inbox
from kctl_agent.rpc.params import check_params
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject, encode


def answer(rpc: str, snapshot: Snapshot, later: float = 0.0) -> JsonObject:
    """The answer `later` seconds after the snapshot was published, as a caller reads it."""
    result: JsonObject = json.loads(encode(COMMANDS[rpc].answer(snapshot, {}, snapshot.published_at + later))[4:])
    return result


def bare(snapshot: Snapshot) -> Snapshot:
    """A worker that has only just begun: nothing is known."""
    return replace(snapshot, member=None, partitions=(), brokers=None, topics=None, storage=None)


@pytest.mark.shows("the commands are a table; whatever is not in it is unknown")
def test_the_table_holds_commands_by_their_names_and_none_changes_anything() -> None:
    assert all(name == command.name for name, command in COMMANDS.items())
    assert not any(command.changes for command in COMMANDS.values())


@pytest.mark.parametrize("rpc", ["kafka_lag", "offset_checker"])
def test_partitions_are_reported_with_every_offset_and_its_age(rpc: str, snapshot: Snapshot) -> None:
    known, unknown = answer(rpc, snapshot, later=1.0)["rows"]

    assert known == {
        "topic": "orders",
        "partition": 0,
        "start": 5,
        "committed": 100,
        "position": 120,
        "end": 130,
        "lag": 30,
        "last_timestamp": 1_700_000_000.5,
        "generation": 7,
        "age_seconds": pytest.approx(3.0),
    }
    assert unknown == dict.fromkeys(known) | {"topic": "orders", "partition": 1, "generation": 7}


@pytest.mark.parametrize(
    ("reset", "start", "position", "lag"),
    [
        ("earliest", 20, None, 80),
        ("earliest", 20, 70, 80),
        ("earliest", None, 70, None),
        ("latest", 20, 70, 30),
        ("latest", 20, None, None),
    ],
)
def test_before_the_first_commit_the_reset_policy_decides_what_lag_is_as_for_the_master(
    reset: str, start: int | None, position: int | None, lag: int | None
) -> None:
    assert lag_of(start, None, position, 100, reset) == lag

    offsets = (start, None, position, 100)
    assert PartitionRow("t", 0, *offsets, None, "w", 1, 0.0, ResetPolicy(reset)).lag == lag


def test_lag_is_never_negative() -> None:
    assert lag_of(0, 131, 131, 130) == 0


def test_a_worker_without_partitions_answers_with_no_rows(snapshot: Snapshot) -> None:
    assert answer("kafka_lag", bare(snapshot)) == {"rows": []}


@pytest.mark.shows("`block_size` shows what waits for its next try, the limits, and why a storage is full")
def test_the_storage_is_named_by_its_identity_and_unknown_counts_are_null(snapshot: Snapshot) -> None:
    assert answer("block_size", snapshot) == {
        "storage": "file:/data/storage.sqlite",
        "pending": 10,
        "delayed": 3,
        "processing": None,
        "dead": 0,
        "bytes": 4096,
        "limit": 1000,
        "limit_bytes": None,
        "dead_limit": 50,
        "free_bytes": None,
        "full": "no room",
        "error": None,
        "age_seconds": None,
    }
    unknown = answer("block_size", replace(snapshot, storage=StorageReply("file:/x")))
    assert {name: value for name, value in unknown.items() if value is not None} == {"storage": "file:/x"}


def test_of_a_table_its_counts_and_the_commits_of_the_worker_are_known_and_messages_are_not(snapshot: Snapshot) -> None:
    table = TableReply(7, 1000, 12, 10, 3.0)
    worker = replace(snapshot.worker, commits=CommitStats(2, 5))
    of_table = replace(snapshot, worker=worker, storage=StorageReply("lake:/x", bytes=4096, table=table))

    stored = answer("block_size", of_table, later=1.0)

    assert (stored["pending"], stored["bytes"]) == (None, 4096)
    age = stored["table"].pop("last_commit_seconds")
    assert age == pytest.approx(4.0)
    assert stored["table"] == {"version": 7, "rows": 1000, "files": 12, "small_files": 10}
    assert answer("workers", of_table)["commits"] == {"failed": 2, "retried": 5}
    uncounted = answer("block_size", replace(snapshot, storage=StorageReply("lake:/x", table=TableReply())))
    assert uncounted["table"] == dict.fromkeys(("version", "rows", "files", "small_files", "last_commit_seconds"))


def test_the_leader_is_shown_with_the_members_own_partitions(snapshot: Snapshot) -> None:
    assert answer("member_leader", snapshot) == {
        "member_id": "m-1",
        "worker": "worker-0",
        "generation": 7,
        "leader": "m-1",
        "is_leader": True,
        "group": "orders-group",
        "assignor": "range",
        "partitions": [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}],
    }


def test_brokers_and_topics_are_shown_row_by_row(snapshot: Snapshot) -> None:
    assert answer("metadata_brokers", snapshot) == {
        "rows": [{"node_id": 1, "host": "b1.example", "port": 9092, "rack": None, "controller": True}]
    }
    assert answer("metadata_topics", snapshot) == {
        "rows": [
            {
                "topic": "orders",
                "partition": 0,
                "leader_id": 1,
                "replica_nodes": [1, 2],
                "isr_nodes": [1],
                "offline": [2],
            }
        ]
    }


@pytest.mark.parametrize("rpc", ["block_size", "member_leader", "metadata_brokers", "metadata_topics"])
def test_what_is_not_known_yet_is_not_ready_rather_than_empty(rpc: str, snapshot: Snapshot) -> None:
    with pytest.raises(NotReady, match="ask again"):
        answer(rpc, bare(snapshot))


@pytest.mark.shows("state, pace, events and last error of a worker are in its answers")
def test_a_worker_reports_its_state_its_pace_and_its_events(snapshot: Snapshot) -> None:
    assert answer("workers", snapshot, later=1.0) == {
        "name": "worker-0",
        "kind": "worker",
        "state": "running",
        "state_seconds": pytest.approx(31.0),
        "pid": os.getpid(),
        "uptime_seconds": pytest.approx(61.0),
        "rss_bytes": 50_000_000,
        "query_id": "q-1",
        "batch_id": 3,
        "last_batch_seconds": 1.5,
        "last_batch_rows": 200,
        "rows_per_second": 133.3,
        "batch_running_seconds": pytest.approx(5.0),
        "rows_total": 600,
        "batches_total": 3,
        "queries_failed": 0,
        "left_out": [],
        "isolated": [],
        "last_error": None,
        "waiting_for": None,
        "paused": [],
        "events": [
            {
                "at": 1_700_000_000.0,
                "kind": "rewound",
                "topic": "orders",
                "partition": 0,
                "from": 100,
                "to": 5,
                "text": "the group was reset",
            }
        ],
    }


def test_between_two_batches_none_is_running(snapshot: Snapshot) -> None:
    resting = replace(snapshot, worker=replace(snapshot.worker, batch_running_seconds=None))

    assert answer("workers", resting)["batch_running_seconds"] is None


def test_ping_names_the_process_and_what_a_supervisor_judges_it_by(snapshot: Snapshot) -> None:
    answered = answer("ping", snapshot)

    assert {key: answered[key] for key in ("name", "pid", "version", "state", "batches_total")} == {
        "name": "worker-0",
        "pid": os.getpid(),
        "version": __version__,
        "state": snapshot.worker.state,
        "batches_total": snapshot.worker.batches_total,
    }


def test_ping_reports_how_long_ago_the_main_thread_took_its_operations_once_it_has(snapshot: Snapshot) -> None:
    inbox = Inbox()
    ping = ping_of(inbox)
    assert ping.answer(snapshot, {}, time.monotonic())["main_thread_age_seconds"] is None

    inbox.take()

    assert inbox.taken_at is not None
    assert ping.answer(snapshot, {}, inbox.taken_at + 70)["main_thread_age_seconds"] == pytest.approx(70)
    assert answer("ping", snapshot)["main_thread_age_seconds"] is None, "of an attached application"


def test_the_lag_of_a_ping_is_not_known_while_the_brokers_are_silent(snapshot: Snapshot) -> None:
    known = tuple(replace(each, lag=6, age_seconds=1.0) for each in snapshot.partitions)
    young = replace(snapshot, partitions=known)
    old = replace(young, partitions=(*known[1:], replace(known[0], age_seconds=16.0)))

    assert answer("ping", young)["lag"] == 6 * len(known)
    assert answer("ping", old)["lag"] is None
    assert answer("ping", young, later=14.5)["lag"] is None
    assert answer("ping", replace(young, not_read=frozenset({("orders", 1)})))["lag"] == 6
    assert answer("ping", replace(young, partitions=()))["lag"] is None


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


def test_describe_lists_the_parameters_of_a_command_that_was_added(snapshot: Snapshot) -> None:
    pause = AgentCommand(
        "pause", lambda *_: {}, "pause", (Param("seconds", "number", "how long", required=True),), changes=True
    )

    table = with_describe(COMMANDS | {"pause": pause})

    methods = {each["rpc"]: each for each in table["describe"].answer(snapshot, {}, 0.0)["methods"]}
    assert methods["pause"]["changes"] is True
    assert methods["pause"]["params"] == [
        {"name": "seconds", "type": "number", "required": True, "summary": "how long"}
    ]
    assert len(methods) == len(COMMANDS) + 1


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
def test_a_parameter_the_command_does_not_take_is_refused_by_its_name(params: JsonObject, refusal: str) -> None:
    command = AgentCommand(
        "seek",
        lambda *_: {},
        "for this test",
        (
            Param("text", "string", "", required=True),
            Param("count", "integer", ""),
            Param("share", "number", ""),
            Param("flag", "boolean", ""),
        ),
    )

    with pytest.raises(BadParams, match=refusal):
        check_params(command.name, command.params, params)
    check_params(command.name, command.params, {"text": "a", "count": 1, "share": 1, "flag": False})


def test_a_command_without_parameters_is_described_as_such() -> None:
    with pytest.raises(BadParams, match="it takes no parameters"):
        check_params("ping", COMMANDS["ping"].params, {"name": "x"})
