from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import product
from typing import Any, cast

import httpx

from kctl.http.access import AccessRights, Token
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context
from kctl.master.operations.fleet_operation import FleetOperation
from kctl.master.operations.operation_log import OperationLog
from kctl_agent.rpc.params import param
from kctl_agent.rpc.wire import JsonObject
from tests.fleet_snapshot import TOKEN, TOKENS, serving, snapshot, source_of

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
