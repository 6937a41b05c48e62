from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kctl.master.reduction import COMMANDS, OFFSET_CHECKER, WORKERS, gaps, reduced, with_supervisor
from kctl.master.snapshot import Reduced
from kctl.reduce.base import Answer, BrokerSnapshot, Freshness
from kctl.rows.columns import Reals
from kctl.status import Assessor, Owner, StatusRules
from kctl.status.owners import Owners
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.commands import COMMANDS as OF_AGENTS
from kctl_agent.rpc.wire import JsonObject
from tests.fleet_snapshot import worker
from tests.partitions import Row, columns_of
from tests.replies import NOBODY, outcome_of, parsed, reply_of

FRESH = Freshness(0.5, 0.5, 2.0, None)
ODD: list[Any] = [None, "x", 7, -1.5, True, [], {}, [1], ["x"], [{}], {"a": 1}, 10**400, -(2**63)]


def odd_ones(value: Any) -> Iterator[Any]:
    """`value` with one part replaced, in every way."""
    yield from ODD
    if isinstance(value, dict):
        for name, part in value.items():
            yield from ({**value, name: odd} for odd in odd_ones(part))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            yield from ([*value[:i], odd, *value[i + 1 :]] for odd in odd_ones(part))


@pytest.mark.parametrize("rpc", sorted(COMMANDS.keys() & OF_AGENTS.keys()))
def test_whatever_one_agent_replies_the_others_are_reduced(rpc: str) -> None:
    command, good = COMMANDS[rpc], Answer("a", reply_of(rpc, partitions=2), 0.0)
    [expected] = parsed(rpc, [good])
    for odd in odd_ones(good.result):
        if not isinstance(odd, dict):
            continue
        for name in ("0", "b"):
            sent = outcome_of(good, Answer(name, odd, 0.0))
            outcome, of_host = command.decoded(sent), command.between_hosts().decoded(command.shortened(sent))
            assert of_host.failed == outcome.failed
            assert command.encoded(command.reduce(of_host.answers, NOBODY)) == command.encoded(
                command.reduce(outcome.answers, NOBODY)
            )
            assert expected in outcome.answers
            assert {failure.code for failure in outcome.failed} <= {"bad_result"}
            json.dumps(command.encoded(reduced(command, outcome, NOBODY, FRESH).result))


def test_what_one_agent_reports_of_a_partition_can_always_be_judged_and_kept() -> None:
    good = Answer("a", reply_of("offset_checker", 2), 0.0)
    owner = Owner("a", "running", 1.0)
    for odd in odd_ones(good.result["rows"][0]):
        outcome = OFFSET_CHECKER.decoded(outcome_of(good, Answer("b", {"rows": [odd]}, 0.0)))
        columns, assessor = OFFSET_CHECKER.reduce(outcome.answers, NOBODY), Assessor(StatusRules())
        for now in (1.0, 2.0):
            assessor.assess(replace(columns, now=now), Owners.of([owner] * len(columns.names)), now)


SILENT = Freshness(13.2, 13.2, 2.0, "b:9092 refused the connection")
NEVER = Freshness(None, None, 2.0, None)


def row(partition: int, age: float, lag: int | None = 0) -> Row:
    end = None if lag is None else lag
    return Row("orders", partition, 0, 0, 0, end, None, "worker-0", 1, age)


def partitions(*rows: Row) -> tuple[Reals, list[str]]:
    columns = columns_of(*rows)
    return columns.age_seconds, [
        f"{row.topic}-{row.partition}" for row in columns.rows() if row.remaining_count is None
    ]


@pytest.mark.parametrize("rpc", ["kafka_lag", "offset_checker"])
def test_rows_older_than_two_intervals_are_stale_with_age_and_reason(rpc: str) -> None:
    assert gaps(rpc, FRESH, *partitions(row(0, 2.0), row(1, 0.1))) == ()

    [gap] = gaps(rpc, SILENT, *partitions(row(0, 13.2), row(1, 13.2)))
    assert (gap.sender, gap.code) == ("brokers", "stale")
    assert gap.message == "the brokers' offsets are up to 13 s old: b:9092 refused the connection"
    [gap] = gaps(rpc, FRESH, *partitions(row(0, 2.1), row(1, 0.1)))
    assert gap.message == "the brokers' offsets of 1 of 2 partitions are up to 2 s old"
    assert gaps(rpc, SILENT, *partitions(row(0, 0.3))) == (), "workers have just fetched it"


def test_an_unknown_lag_is_named_and_brokers_that_never_answered_are_a_gap() -> None:
    [gap] = gaps("kafka_lag", FRESH, *partitions(*(row(n, 0.1, None if n else 5) for n in range(10))))

    assert gap.code == "unknown"
    assert gap.message.startswith("the lag of orders-1, orders-2, orders-3, orders-4, orders-5 and 4 more is not known")

    assert gaps("kafka_lag", FRESH) == ()
    assert [gap.code for gap in gaps("kafka_lag", NEVER)] == ["stale"]
    [gap] = gaps("kafka_lag", replace(FRESH, missing_topics=("orders",)))
    assert (gap.code, gap.message) == ("unknown", "the lag of orders is not known: the topic does not exist")


@pytest.mark.parametrize("rpc", ["member_leader", "metadata_brokers", "metadata_topics"])
def test_metadata_are_as_old_as_the_last_answer_of_a_broker(rpc: str) -> None:
    assert gaps(rpc, FRESH) == ()
    assert "13 s old" in gaps(rpc, SILENT)[0].message
    assert gaps(rpc, NEVER)[0].message == "no broker has answered the master yet"
    assert [gaps(each, NEVER) for each in ("block_size", "ping", "workers", "describe")] == [()] * 4


def running() -> JsonObject:
    reply: JsonObject = encoded(replace(WorkerReply.starting("worker-0", "worker"), state="running"))
    return reply


def rows(**reported: JsonObject) -> list[JsonObject]:
    answers = parsed("workers", [Answer(name, result, 0.0) for name, result in reported.items()])
    reduced = Reduced(WORKERS.reduce(answers, BrokerSnapshot()), ("worker-0",), (), (), None)
    found: list[JsonObject] = encoded(with_supervisor(reduced, [worker("worker-0", "starting")]).result)["rows"]
    return found


def test_the_row_of_a_worker_that_is_silent_has_the_same_fields_as_of_one_that_answers() -> None:
    [silent], [answering] = rows(), rows(**{"worker-0": running()})
    assert sorted(silent) == sorted(answering)
    assert answering["state"] == "running"
    unknown = {name for name, value in silent.items() if value is None}
    assert unknown == {*running(), "age_seconds"} - {"name", "kind", "pid", "events"}


@pytest.mark.shows("an attached agent cannot take a worker's row by its name")
def test_a_worker_is_named_as_its_socket_and_an_attached_agent_has_no_supervisor() -> None:
    assert [row["supervisor"] is None for row in rows(notebook=running())] == [True, False]
    both = rows(**{"worker-0": running(), "notebook": running()})
    assert [(row["name"], row["supervisor"] is None) for row in both] == [("notebook", True), ("worker-0", False)]
