from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from typing import Any

import pytest

from kctl_agent import __version__
from kctl_agent.errors import BadParams, NotReady
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.partitions import PartitionsReply, lag_of
from kctl_agent.replies.workers import CommitStats
from kctl_agent.rpc.commands import COMMANDS, Param
from kctl_agent.rpc.messages import is_plain_number
from kctl_agent.rpc.operations import scope_of
from kctl_agent.rpc.params import check_params
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import JsonObject, encode


def answer(rpc: str, snapshot: Snapshot, later: float = 0.0) -> JsonObject:
    """The decoded answer, `later` seconds after the snapshot."""
    result: JsonObject = json.loads(encode(COMMANDS[rpc].answer(snapshot, {}, snapshot.published_at + later))[4:])
    return result


def bare(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, replies=())


@pytest.mark.parametrize("rpc", ["kafka_lag", "offset_checker"])
def test_partitions_are_reported_with_every_offset_and_its_age(rpc: str, snapshot: Snapshot) -> None:
    known, unknown = answer(rpc, snapshot, later=1.0)["rows"]

    [sent] = [each for each in snapshot.replies if isinstance(each, PartitionsReply)]
    ages = {"age_seconds": pytest.approx(3.0), "stored_seconds": pytest.approx(8.0)}
    assert known == asdict(sent.rows[0]) | ages
    assert unknown == dict.fromkeys(known) | {"topic": "orders", "partition": 1, "generation": 7}
    assert answer(rpc, bare(snapshot)) == {"rows": []}
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
        answer(rpc, bare(snapshot))


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
