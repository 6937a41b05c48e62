"""The command line's edge: what the master encodes is read as the rows it was encoded from, and nothing else passes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kctl.cli.fleet.tables import TABLES
from kctl.errors import BadAnswer
from kctl.master.reduction import COMMANDS, reduced
from kctl.master.supervised import with_supervisor
from kctl.reduce import Answer, BrokerSnapshot, Freshness, encoded
from kctl.reduce.describe import Methods
from kctl.rows.methods import MethodRow
from kctl.rows.offsets import OffsetRow
from kctl.rows.workers import PauseRow, WorkerRow, WorkerStatus, with_statuses
from kctl.rpc import answers
from kctl.rpc.fan_out import FanOut
from kctl_agent.wire import JsonObject
from tests.unit.kctl_master.test_reduction import reply_of

STATUS = WorkerStatus(
    *("worker-0", "worker", "running", "backoff", None, 2.5, {"signal": 2}, 1.5, "died", "/log/worker-0.log", 4096),
    warning="no memory limit",
    paused=(PauseRow("orders", 1, "ann", 5.0),),
)


def sent(document: Any) -> JsonObject:
    """As it comes out of the socket."""
    received: JsonObject = json.loads(json.dumps(document))
    return received


def reduced_result(rpc: str) -> Any:
    if rpc == "describe":  # the agent's dispatcher answers it, not its snapshot
        return Methods((MethodRow("getPing", "ping", "Is it there?", ({"name": "worker"},), 2000, False),))
    command = COMMANDS[rpc]
    outcome = command.parsed(FanOut([Answer("worker-0", reply_of(rpc, 3), 0.25)], []))
    whole = reduced(command, outcome, BrokerSnapshot(), Freshness(None, None, 2.0, None))
    return (with_supervisor(whole, [STATUS]) if rpc == "workers" else whole).result


@pytest.mark.shows("the command line reads answers as the master's rows; one of another shape names its field")
@pytest.mark.parametrize("rpc", sorted(TABLES))
def test_an_answer_is_read_as_the_rows_that_the_master_has_encoded(rpc: str) -> None:
    result = reduced_result(rpc)
    read = TABLES[rpc].read(sent(COMMANDS[rpc].encoded(result)))

    if rpc == "kafka_lag":
        assert read == COMMANDS[rpc].shown(result)
    elif rpc == "offset_checker":
        assert read.rows == tuple(OffsetRow(**row.to_json()) for row in result.rows)
    elif rpc == "member_leader":
        assert encoded(read) == encoded(result)
    else:
        assert read == getattr(result, "rows", getattr(result, "methods", result))


def test_a_status_is_read_as_the_supervisor_has_it() -> None:
    assert answers.status(sent({"rows": encoded([STATUS])})) == (STATUS,)


def test_an_answer_without_rows_has_none() -> None:
    assert (answers.workers({}), answers.offset_checker({"rows": []}).rows, answers.status({"rows": None})) == (
        (),
        (),
        (),
    )


@pytest.mark.parametrize(
    ("rpc", "result", "why"),
    [
        ("kafka_lag", {}, '"topics" is missing'),
        ("kafka_lag", {"topics": {"orders": "many"}}, '"orders" is not a whole number'),
        ("offset_checker", {"rows": [{"topic": "orders", "partition": "0"}]}, '"partition" of a row is not a whole'),
        ("block_size", {"pending": "many"}, '"pending" is not a whole number'),
        ("member_leader", {"members": [{"member_id": "m"}]}, '"worker" is missing'),
        ("workers", {"rows": [{"name": "w", "supervisor": {"name": "w"}}]}, '"restarts_by_cause" is missing'),
        ("ping", {"rows": [{"pid": 1}]}, '"name" is missing'),
    ],
)
def test_an_answer_of_another_shape_is_refused_and_names_the_field(rpc: str, result: JsonObject, why: str) -> None:
    with pytest.raises(BadAnswer, match=f"^the master's answer to {rpc} does not have its shape: {why}"):
        answers.typed(rpc, TABLES[rpc].read, result)


def test_workers_stand_in_the_supervisors_order_and_those_only_attached_behind() -> None:
    guest, own = WorkerRow("guest", "attached"), WorkerRow("worker-0", "worker", batch_id=3)

    rows = with_statuses([guest, own], [STATUS])

    assert [(row.name, row.batch_id, row.supervisor) for row in rows] == [
        ("worker-0", 3, STATUS),
        ("guest", None, None),
    ]
    assert with_statuses([], [STATUS]) == [WorkerRow("worker-0", "worker", supervisor=STATUS)]
