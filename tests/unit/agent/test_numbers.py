from __future__ import annotations

import json
from typing import Any

import pytest

from kctl_agent.errors import AgentError, BadParams, BadRequest
from kctl_agent.rpc.commands import Param
from kctl_agent.rpc.commands.base import AgentCommand
from kctl_agent.rpc.messages import Request, is_plain_number
from kctl_agent.rpc.operations import scope_of
from kctl_agent.rpc.params import check_params
from kctl_agent.worker.offsets.positions import Found
from kctl_agent.worker.offsets.seek import plan

HUGE = [10**400, -(10**400), 2**63]


@pytest.mark.shows("NaN, Infinity and numbers beyond 64 bits are rejected in every request")
@pytest.mark.parametrize("number", [*HUGE, float("nan"), float("inf"), -float("inf")])
def test_a_parameter_must_be_a_plain_number(number: Any) -> None:
    command = AgentCommand("c", lambda *_: {}, "", (Param("n", "number", ""), Param("i", "integer", "")))

    with pytest.raises(BadParams, match="finite number"):
        check_params(command.name, command.params, {"n": number})
    if isinstance(number, int):
        with pytest.raises(BadParams, match="finite number"):
            check_params(command.name, command.params, {"i": number})
    assert not is_plain_number(number)


@pytest.mark.parametrize("deadline", [10**400, 2**63])
def test_a_deadline_is_of_64_bits(deadline: int) -> None:
    with pytest.raises(BadRequest, match="deadline_ms"):
        Request.parse({"role": 0, "rpc": "ping", "method": "getPing", "deadline_ms": deadline})


@pytest.mark.parametrize("field", ["since", "partition"])
def test_a_scope_holds_plain_numbers(field: str) -> None:
    scope = {"topic": "t", "partition": 0, "by": "me", "since": 1.0}

    with pytest.raises(BadParams):
        scope_of({**scope, field: 10**400})


@pytest.mark.parametrize("to", ["9" * 20, "9223372036854775808", "@9223372036854775808", "@" + "9" * 5000, "9" * 5000])
def test_a_seek_beyond_64_bits_is_rejected_before_a_broker_is_asked(to: str) -> None:
    def never(_milliseconds: int) -> int | None:
        raise AssertionError("asked")

    with pytest.raises(AgentError):
        plan(to, Found("t", 0, None, None, 0, 10), 5, never)


def test_progress_of_spark_may_hold_a_rate_that_is_no_number() -> None:
    from kctl_agent.attached.queries import Queries

    queries = Queries("app")
    queries.polled("q", "", json.dumps({"batchId": 1, "processedRowsPerSecond": float("nan"), "numInputRows": 3}))
