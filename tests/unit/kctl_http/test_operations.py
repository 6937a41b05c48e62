from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict, replace
from itertools import product
from typing import Any, cast

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.specs.openapi.checks import positive_data_acceptance

from kctl.dead_letters.workbench import Workbench
from kctl.http.access import AccessRights, Token
from kctl.http.app import create_app
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context
from kctl.master.operations.fleet_operation import FleetOperation
from kctl.master.operations.operation_log import OperationLog
from kctl.master.snapshot import Reduced
from kctl_agent.message import Message
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.params import param
from kctl_agent.rpc.wire import JsonObject
from tests.fleet_snapshot import TOKEN, TOKENS, healthy, serving, snapshot, source_of
from tests.scratch_storage import ScratchStorage

NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400, "-" + "9" * 4000, "9223372036854775808"]
READER = {"authorization": "Bearer 0123456789abcdef-read"}
RIGHTS = AccessRights(tokens=(*TOKENS, Token("0123456789abcdef-read")))


class Act(FleetOperation, rpc="act"):
    """For a test."""

    n: float | None = param("a number", default=None)
    i: int | None = param("a whole number", default=None)

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset()

    async def carry_out(self, context: Context, caller: Caller, report: Report) -> tuple[str, JsonObject]:
        await asyncio.sleep(0)
        return "done", {name: value for name, value in asdict(self).items() if value is not None}


class Look(Act, rpc="look", changes=False):
    """Changes nothing, like `stack`."""


@asynccontextmanager
async def api(kind: type[FleetOperation] = Act) -> AsyncIterator[httpx.AsyncClient]:
    """Shows the token that may act."""
    operations = OperationLog({kind.rpc: kind}, cast("Any", None), None)
    headers = {"authorization": f"Bearer {TOKEN}"}
    async with (
        serving(source_of(snapshot(), operations=operations), RIGHTS) as server,
        httpx.AsyncClient(timeout=10, base_url=f"{server.url}/api/v1/", headers=headers) as client,
    ):
        yield client


async def post(client: httpx.AsyncClient, body: str, media_type: str | None = "application/json") -> httpx.Response:
    """Also checks that an operation is listed if it was accepted, and only then."""
    headers = {} if media_type is None else {"content-type": media_type}
    response = await client.post("operations", content=body.encode(), headers=headers)
    listed = await client.get("operations")
    assert listed.status_code == 200, "the list of operations is broken"
    assert bool(listed.json()["rows"]) == (response.status_code == 200)
    return response


async def test_what_a_process_was_seen_to_do_is_for_those_who_may_ask_it() -> None:
    async with api(Look) as client:
        id_ = (await client.post("operations", json={"operation": "look", "params": {"i": 7}})).json()["id"]
        results = [(await client.get(f"operations/{id_}", headers=each)).json()["result"] for each in ({}, READER)]

    assert results == [{"i": 7}, {}]


BAD_NUMBERS = list(
    product(
        (
            '{"operation": "act", "params": {"deadline_seconds": %s}}',
            '{"operation": "act", "params": {"n": %s}}',
            '{"operation": "act", "params": {"i": %s}}',
            '{"operation": "act", "wait_seconds": %s}',
            '{"operation": "act", "params": {"unknown": [%s]}}',
            '{"operation": "act", "unknown": %s}',
        ),
        NUMBERS,
    )
)
QUERIES = "lag?min_lag", "lag?limit", "lag?partition", "events?recent", "workers?limit"
NO_OBJECTS = ("", "{", "[]", "1", "null", "NaN", '{"operation": "act"} {}', "\ufeff{}", "{" * 50_000)


async def test_only_json_objects_with_their_content_type_and_numbers_start_something() -> None:
    message = "the body must be JSON: send `Content-Type: application/json`"
    error = {"code": "unsupported_media_type", "message": message, "retriable": False}
    body = json.dumps({"operation": "act", "params": {"n": 0.5, "deadline_seconds": 3}})
    async with api() as client:
        for bad in (*(body % number for body, number in BAD_NUMBERS), *NO_OBJECTS):
            response = await post(client, bad)

            assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_params"), bad
        for query, number in product(QUERIES, ("NaN", "Infinity", "-Infinity", "1e999", "nan", "inf")):
            response = await client.get(f"{query}={number}")
            assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_params"), (query, number)
        for media_type in OTHER_TYPES:
            response = await post(client, body, media_type)
            assert (response.status_code, response.json()) == (415, {"error": error}), media_type
        for media_type in ("application/json", "Application/JSON; charset=utf-8"):
            done = await post(client, body, media_type)
            assert (done.status_code, done.json()["state"], done.json()["result"]) == (200, "done", {"n": 0.5})


OTHER_TYPES = None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "js"


async def test_forms_are_made_of_what_can_be_submitted_by_holders_of_the_token() -> None:
    async with api() as client:
        reader = await client.get("operations/types", headers=READER)
        without = await client.get("operations/types", headers={"authorization": ""})
        described = await client.get("operations/types")

    assert (reader.status_code, without.status_code) == (403, 401)
    (row,) = described.json()["rows"]
    assert (row["rpc"], row["summary"], row["changes"]) == ("act", "For a test.", True)
    assert [(each["name"], each["type"], each["required"]) for each in row["params"]] == [
        ("n", "number", False),
        ("i", "integer", False),
    ]


async def fleet(request: Request) -> Reduced[Any]:
    await asyncio.sleep(0)
    return replace(healthy().reduced(request.rpc), failed=(), age_seconds=0.1)


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
