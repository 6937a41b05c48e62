from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from itertools import product
from typing import Any, cast

import httpx
import pytest

from kctl.http.access import AccessRights, Token
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context
from kctl.master.operations.fleet_operation import FleetOperation
from kctl.master.operations.operation_log import OperationLog
from kctl_agent.rpc.params import param
from kctl_agent.rpc.wire import JsonObject
from tests.fleet_snapshot import TOKEN, TOKENS, serving, snapshot, source_of

Post = Callable[..., Awaitable[httpx.Response]]
NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "-1e999", "1" + "0" * 400, "-" + "9" * 4000, "9223372036854775808"]


class Act(FleetOperation, rpc="act"):
    """For a test."""

    n: float | None = param("a number", default=None)
    i: int | None = param("a whole number", default=None)

    def touches(self, context: Context) -> frozenset[str]:
        return frozenset()

    async def carry_out(self, context: Context, caller: Caller, report: Report) -> tuple[str, JsonObject]:
        await asyncio.sleep(0)
        return "done", {name: value for name, value in asdict(self).items() if value is not None}


class Wait(Act, rpc="wait"):
    async def carry_out(self, context: Context, caller: Caller, report: Report) -> tuple[str, JsonObject]:
        await asyncio.Event().wait()
        raise AssertionError


class Look(Act, rpc="look", changes=False):
    """Changes nothing, like `stack`."""


async def test_what_a_process_was_seen_to_do_is_for_those_who_may_ask_it() -> None:
    operations = OperationLog({"look": Look}, cast("Any", None), None)
    reader = Token("fedcba9876543210-token")
    rights = AccessRights(tokens=(*TOKENS, reader))
    async with (
        serving(source_of(snapshot(), operations=operations), rights) as server,
        httpx.AsyncClient(timeout=10, base_url=f"{server.url}/api/v1/") as client,
    ):
        holder, other = ({"authorization": f"Bearer {each}"} for each in (TOKEN, reader.secret))
        asked = {"operation": "look", "params": {"i": 7}}
        id_ = (await client.post("operations", json=asked, headers=holder)).json()["id"]
        results = [(await client.get(f"operations/{id_}", headers=each)).json()["result"] for each in (holder, other)]

    assert results == [{"i": 7}, {}]


def operation_log() -> OperationLog:
    return OperationLog({"act": Act}, cast("Any", None), None)


@pytest.fixture
async def post() -> AsyncIterator[Post]:
    operations = operation_log()
    async with (
        serving(source_of(snapshot(), operations=operations), AccessRights(tokens=TOKENS)) as server,
        httpx.AsyncClient(timeout=10, base_url=server.url, headers={"authorization": f"Bearer {TOKEN}"}) as client,
    ):

        async def posting(body: str, media_type: str | None = "application/json") -> httpx.Response:
            headers = {} if media_type is None else {"content-type": media_type}
            response = await client.post("/api/v1/operations", content=body.encode(), headers=headers)
            listed = await client.get("/api/v1/operations")
            assert listed.status_code == 200, "the list of operations is broken"
            assert bool(listed.json()["rows"]) == (response.status_code == 200)
            return response

        yield posting


async def test_nan_infinity_and_other_non_numbers_are_rejected_and_start_nothing(post: Post) -> None:
    for body in (
        '{"operation": "act", "params": {"deadline_seconds": %s}}',
        '{"operation": "act", "params": {"n": %s}}',
        '{"operation": "act", "params": {"i": %s}}',
        '{"operation": "act", "wait_seconds": %s}',
        '{"operation": "act", "params": {"unknown": [%s]}}',
        '{"operation": "act", "unknown": %s}',
    ):
        for number in NUMBERS:
            response = await post(body % number)

            assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_params"), (body, number)


async def test_a_body_that_is_no_json_object_is_a_bad_parameter(post: Post) -> None:
    for body in ("", "{", "[]", "1", "null", "NaN", '{"operation": "act"} {}', "\ufeff{}", "{" * 50_000):
        response = await post(body)

        assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_params"), body


async def test_a_body_without_the_json_content_type_is_rejected_with_our_error(post: Post) -> None:
    error = {
        "code": "unsupported_media_type",
        "message": "the body must be JSON: send `Content-Type: application/json`",
        "retriable": False,
    }
    for media_type in (None, "", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "js"):
        response = await post('{"operation": "act"}', media_type)

        assert (response.status_code, response.json()) == (415, {"error": error}), media_type


@pytest.mark.parametrize("media_type", ["application/json", "Application/JSON; charset=utf-8"])
async def test_json_with_its_content_type_is_carried_out(post: Post, media_type: str) -> None:
    response = await post(json.dumps({"operation": "act", "params": {"n": 0.5, "deadline_seconds": 3}}), media_type)

    assert (response.status_code, response.json()["state"], response.json()["result"]) == (200, "done", {"n": 0.5})


async def test_a_parameter_that_is_not_a_number_is_rejected() -> None:
    queries = ("lag?min_lag", "lag?limit", "lag?partition", "events?recent", "workers?limit")
    async with serving(source_of(snapshot())) as server, httpx.AsyncClient(timeout=10, base_url=server.url) as client:
        for query, number in product(queries, ("NaN", "Infinity", "-Infinity", "1e999", "nan", "inf")):
            response = await client.get(f"/api/v1/{query}={number}")

            assert (response.status_code, response.json()["error"]["code"]) == (400, "bad_params"), (query, number)


async def test_forms_are_made_of_what_can_be_submitted_by_holders_of_the_token() -> None:
    tokens = (*TOKENS, Token("0123456789abcdef-read"))
    source = source_of(snapshot(), operations=operation_log())
    async with serving(source, AccessRights(tokens=tokens)) as server, httpx.AsyncClient(timeout=10) as client:
        url = f"{server.url}/api/v1/operations/types"
        reader = await client.get(url, headers={"authorization": "Bearer 0123456789abcdef-read"})
        without = await client.get(url)
        described = await client.get(url, headers={"authorization": f"Bearer {TOKEN}"})

    assert (reader.status_code, without.status_code) == (403, 401)
    (row,) = described.json()["rows"]
    assert (row["rpc"], row["summary"], row["changes"]) == ("act", "For a test.", True)
    assert [(each["name"], each["type"], each["required"]) for each in row["params"]] == [
        ("n", "number", False),
        ("i", "integer", False),
    ]


async def test_an_operation_under_way_is_cancelled_over_http() -> None:
    source = source_of(snapshot(), operations=OperationLog({"wait": Wait}, cast("Any", None), None))
    async with (
        serving(source, AccessRights(tokens=TOKENS)) as server,
        httpx.AsyncClient(timeout=10, base_url=server.url, headers={"authorization": f"Bearer {TOKEN}"}) as client,
    ):
        begun = await client.post("/api/v1/operations", json={"operation": "wait", "wait_seconds": 0})
        url = f"/api/v1/operations/{begun.json()['id']}"
        cancelled = await client.post(f"{url}/cancel")
        ended = await client.get(url)
        again = await client.post(f"{url}/cancel")
        unknown = await client.post("/api/v1/operations/nothing/cancel")

    assert (begun.status_code, cancelled.status_code) == (202, 202)
    assert (ended.json()["state"], "cancelled by" in ended.json()["text"]) == ("failed", True)
    assert (again.status_code, unknown.status_code) == (409, 404)
