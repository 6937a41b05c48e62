"""The edge: what agents reply becomes typed rows there, once, and what does not fit is refused there."""

from __future__ import annotations

import time
from typing import Any

import pytest

from kctl.master.reduction import COMMANDS
from kctl.reduce import Answer, encoded
from kctl.rows.partitions import PartitionRow
from kctl.rows.workers import AgentState
from kctl.rpc.fan_out import Failed, FanOut
from kctl.rpc.results import BadResult, partitions, ping, worker
from kctl_agent.commands import COMMANDS as AGENTS
from kctl_agent.operations import Scope
from kctl_agent.snapshot import Event, SinkerStats, Snapshot, WorkStats
from kctl_agent.wire import JsonObject
from tests.unit.kctl_master.test_reduction import reply_of

ROW: JsonObject = {
    "topic": "orders",
    "partition": 3,
    "start": 0,
    "committed": 10,
    "position": 12,
    "end": 20,
    "last_timestamp": 5.5,
    "generation": 4,
    "age_seconds": 0.5,
}
WRONG: list[tuple[str, JsonObject, str]] = [
    ("block_size", {"pending": "many"}, '"pending" is not a whole number'),
    ("block_size", {"full": True}, '"full" is not a text'),
    ("describe", {"methods": [{"summary": "without a name"}]}, '"method" is missing'),
    ("describe", {"methods": "all"}, '"methods" is not a list'),
    ("kafka_lag", {"rows": [ROW, {**ROW, "end": "20"}]}, '"end" of a row is not a whole number'),
    ("kafka_lag", {"rows": {}}, '"rows" is not a list'),
    ("member_leader", {"generation": 1.5}, '"generation" is not a whole number'),
    ("member_leader", {"partitions": [{"topic": "orders"}]}, '"partition" of a row is not a whole number'),
    ("metadata_brokers", {"rows": [{"host": "b"}]}, '"node_id" is missing'),
    ("metadata_topics", {"rows": [{"topic": "orders", "partition": 0, "isr_nodes": ["1"]}]}, '"isr_nodes" is not a'),
    ("offset_checker", {"rows": [ROW, 7]}, '"rows" holds something else than objects'),
    ("offset_checker", {"rows": [{**ROW, "committed": 2**62}]}, '"committed" of a row is not a whole number'),
    ("offset_checker", {"rows": [{**ROW, "partition": None}]}, '"partition" of a row is not a whole number'),
    ("ping", {"name": "guest"}, '"pid" is missing'),
    ("ping", {"pid": True}, '"pid" is not a whole number'),
    ("workers", {"state": 7}, '"state" is not a text'),
    ("workers", {"events": [{"at": "now", "kind": "x", "text": "y"}]}, '"at" is not a number'),
    ("workers", {"sinker": {"handled": -1}}, '"handled" is below 0'),
]


def test_a_wrong_reply_is_listed_here_for_every_command() -> None:
    assert {rpc for rpc, _, _ in WRONG} == COMMANDS.keys()


@pytest.mark.shows("an agent's reply is checked once, at the edge: a wrong one names the field")
@pytest.mark.parametrize(("rpc", "result", "why"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_reply_is_a_bad_result_and_names_the_wrong_field(rpc: str, result: JsonObject, why: str) -> None:
    silent = Failed("worker-9", "timeout", "no answer in time")

    outcome = COMMANDS[rpc].parsed(FanOut([Answer("guest", result, 0.1)], [silent], ("worker-1",)))

    assert (outcome.answers, outcome.stopped) == ([], ("worker-1",))
    assert [(failure.sender, failure.code) for failure in outcome.failed] == [
        ("guest", "bad_result"),
        ("worker-9", "timeout"),
    ]
    assert why in outcome.failed[0].message


def test_a_partition_is_read_as_it_was_sent() -> None:
    assert partitions("worker-0", {"rows": [ROW]}) == (
        PartitionRow("orders", 3, 0, 10, 12, 20, 5.5, "worker-0", 4, 0.5),
    )


def test_what_a_partition_does_not_have_is_unknown_and_what_is_not_known_here_is_ignored() -> None:
    [row] = partitions("worker-0", {"rows": [{"topic": "orders", "partition": 0, "colour": "red"}]})

    assert row[:2] == ("orders", 0)
    assert {row.start, row.committed, row.position, row.end, row.last_timestamp, row.generation} == {None}
    assert row.age_seconds == float("inf")


@pytest.mark.parametrize("rows", [None, []])
def test_no_partitions_are_no_rows(rows: Any) -> None:
    assert partitions("worker-0", {"rows": rows}) == ()


@pytest.mark.parametrize("rows", ["", 0, False, {}])
def test_what_is_no_list_of_partitions_does_not_pass_for_none(rows: Any) -> None:
    with pytest.raises(BadResult):
        partitions("worker-0", {"rows": rows})


def test_a_state_of_a_newer_release_is_unknown_and_the_rest_is_read() -> None:
    heard = ping("guest", {"pid": 7, "state": "meditating", "mood": "calm"})

    assert (heard.name, heard.pid, heard.state) == ("guest", 7, None)
    assert ping("guest", {"pid": 7, "state": "throttled"}).state is AgentState.THROTTLED


def test_everything_that_an_agent_replies_to_workers_is_printed_again() -> None:
    now = time.monotonic()
    snapshot = Snapshot(
        *("sinker-0", "sinker", "running", now, now, now),
        work=WorkStats(left_out=(("orders", 1, "no leader"),), last_error="x", batch_started_at=now),
        events=(Event(1.0, "rewound", "back", "orders", 1, 10, 4),),
        paused=(Scope("orders", 2, "ann", 3.0),),
        sinker=SinkerStats(handled=3, handler_p50_seconds=0.5),
    )
    sent = AGENTS["workers"].answer(snapshot, {}, now)

    printed = encoded(worker("sinker-0", sent))

    assert printed == {**sent, "age_seconds": None, "supervisor": None}


@pytest.mark.parametrize("rpc", ["block_size", "describe", "metadata_brokers", "metadata_topics", "ping"])
def test_the_fields_of_an_agents_reply_are_printed_by_their_names(rpc: str) -> None:
    sent = reply_of(rpc, 2)

    printed = encoded(COMMANDS[rpc].parse("worker-0", sent))

    assert printed == sent.get("rows", sent.get("methods", sent))
