from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kctl.master.reduction import COMMANDS, OFFSET_CHECKER, reduced
from kctl.reduce.base import Answer, Freshness
from kctl.status import Assessor, Owner, StatusRules
from kctl.status.owners import Owners
from kctl_agent.rpc.commands import COMMANDS as OF_AGENTS
from tests.replies import NOBODY, outcome_of, parsed, reply_of

FRESH = Freshness(0.0, 0.0, 2.0, None)
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
@pytest.mark.parametrize("partitions", [1, 2])
def test_whatever_one_agent_replies_the_others_are_reduced(rpc: str, partitions: int) -> None:
    command, good = COMMANDS[rpc], Answer("a", reply_of(rpc, partitions), 0.0)
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
