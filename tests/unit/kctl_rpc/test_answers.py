from __future__ import annotations

import re
from typing import Any

import pytest

from kctl.cli.fleet.tables import read
from kctl.errors import BadAnswer
from kctl.master.reduction import COMMANDS, reduced, with_supervisor
from kctl.reduce.base import Answer, BrokerSnapshot, Freshness
from kctl.rows.workers import WorkerRow, WorkerStatus, with_statuses
from kctl_agent.replies.describe import Method, MethodsReply, Param
from kctl_agent.replies.workers import Scope
from kctl_agent.rpc.wire import JsonObject
from tests.replies import outcome_of, raw, reply_of

STATUS = WorkerStatus(
    *("worker-0", "worker", "running", "backoff", None, 2.5, {"signal": 2}, 1.5, "died", "/log/worker-0.log", 4096),
    warning="no memory limit",
    paused=(Scope("orders", 1, "ann", 5.0),),
)


def reduced_result(rpc: str) -> Any:
    if rpc == "describe":  # the agent's dispatcher answers `describe`, not its snapshot
        return MethodsReply((Method("getPing", "ping", "Is it there?", (Param("worker", "string"),), 2000, False),))
    command = COMMANDS[rpc]
    outcome = command.decoded(outcome_of(Answer("worker-0", reply_of(rpc, 3), 0.25)))
    whole = reduced(command, outcome, BrokerSnapshot(), Freshness(None, None, 2.0, None))
    return (with_supervisor(whole, [STATUS]) if rpc == "workers" else whole).result


@pytest.mark.parametrize("rpc", sorted(COMMANDS))
def test_an_answer_is_read_as_the_rows_that_the_master_has_encoded(rpc: str) -> None:
    result = reduced_result(rpc)
    found = read(rpc, raw(COMMANDS[rpc].encoded(result)))

    if rpc == "kafka_lag":
        assert found == COMMANDS[rpc].shown(result)
    elif rpc == "offset_checker":
        assert found.rows == tuple(result.rows())
    else:
        assert found == result


@pytest.mark.parametrize(
    ("rpc", "result", "why"),
    [
        ("kafka_lag", {"topics": {"orders": "many"}}, "Expected `int | null`, got `str` - at `$.topics[...]`"),
        ("offset_checker", {"rows": [{"topic": "orders", "partition": "0"}]}, "got `str` - at `$.rows[0].partition`"),
        ("block_size", {"pending": "many"}, "Expected `int | null`, got `str` - at `$.pending`"),
        ("member_leader", {"members": [{"member_id": "m"}]}, "required field `worker` - at `$.members[0]`"),
        ("workers", {"rows": [{"name": "w", "supervisor": {"name": "w"}}]}, "`kind` - at `$.rows[0].supervisor`"),
        ("ping", {"rows": [{"name": "worker-0"}]}, "required field `pid` - at `$.rows[0]`"),
    ],
)
def test_an_answer_of_another_shape_is_rejected_and_names_the_field(rpc: str, result: JsonObject, why: str) -> None:
    with pytest.raises(BadAnswer, match=f"^the master's answer to {rpc} does not have its shape: .*{re.escape(why)}"):
        read(rpc, raw(result))


def test_workers_stand_in_the_supervisors_order_and_those_only_attached_behind() -> None:
    guest, own = WorkerRow("guest", "attached"), WorkerRow("worker-0", "worker", batch_id=3)

    rows = with_statuses([guest, own], [STATUS])

    assert [(row.name, row.batch_id, row.supervisor) for row in rows] == [
        ("worker-0", 3, STATUS),
        ("guest", None, None),
    ]
    assert with_statuses([], [STATUS]) == [WorkerRow("worker-0", "worker", supervisor=STATUS)]
