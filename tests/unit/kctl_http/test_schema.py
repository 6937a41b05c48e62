from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from kctl.dead_letters.workbench import Workbench
from kctl.http.access import AccessRights
from kctl.http.app import create_app
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context
from kctl.master.operations.fleet_operation import FleetOperation
from kctl.master.operations.operation_log import OperationLog
from kctl.master.snapshot import Reduced
from kctl_agent.message import Message
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.wire import JsonObject
from tests.fleet_snapshot import TOKEN, TOKENS, healthy, source_of
from tests.scratch_storage import ScratchStorage


async def fleet(request: Request) -> Reduced[Any]:
    await asyncio.sleep(0)
    return replace(healthy().reduced(request.rpc), failed=(), age_seconds=0.1)


class Act(FleetOperation, rpc="act"):
    def touches(self, context: Context) -> frozenset[str]:
        return frozenset()

    async def carry_out(self, context: Context, caller: Caller, report: Report) -> tuple[str, JsonObject]:
        await asyncio.sleep(0)
        return "done", {}


DEAD_LETTERS = "/api/v1/dead-letters"
LOG = OperationLog({"act": Act}, cast("Any", None), None)
STORAGE = ScratchStorage()
STORAGE.dead_letter([Message("t", 0, n, b"k", b"v", 0) for n in range(3)], "no")
WORKBENCH = Workbench(lambda: nullcontext(STORAGE), lambda: STORAGE.path.with_name("log"), lambda _: nullcontext(list))
SOURCE = source_of(healthy(), ask=fleet, operations=LOG, dead_letters=WORKBENCH)
APP = create_app(SOURCE, AccessRights(tokens=TOKENS))
HEADERS = {"authorization": f"Bearer {TOKEN}", "host": "localhost"}
SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", APP.guarded, headers=HEADERS)
# An event stream does not end, so it cannot be called like this; test_api.py listens to it.
FOUND: list[Any] = list(SCHEMA.exclude(path="/api/v1/events").get_all_operations())
OPERATIONS = [found.ok() for found in FOUND]


def every_answer_is_as_described(operation: Any, cases: int) -> None:
    @settings(
        max_examples=cases, deadline=None, database=None, phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=operation.as_strategy())
    def judged(case: Any) -> None:
        # `getDescribe` lists the operations and their parameters,
        # and the storage decides which page follows.
        is_exempt = operation.method == "post" or operation.path.startswith(DEAD_LETTERS)
        excluded = [positive_data_acceptance] if is_exempt else []
        case.call_and_validate(headers=HEADERS, excluded_checks=excluded)

    judged()


@pytest.fixture(scope="module", autouse=True)
def _workbench() -> Iterator[None]:
    """Its threads start before and end after all tests."""
    asyncio.run(WORKBENCH.read(lambda *_: None))
    yield
    APP.close()


@pytest.mark.shows("the API passes all checks of schemathesis")
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.path)
def test_every_answer_is_as_it_is_described(operation: Any) -> None:
    every_answer_is_as_described(operation, 6)


@pytest.mark.long
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.path)
def test_thousands_of_answers_are_as_they_are_described(operation: Any) -> None:
    every_answer_is_as_described(operation, 1000)
