import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kctl.groups.snapshot import GroupSnapshot
from kctl.hosts.roster import Host
from kctl.http.access import AccessRights
from kctl.http.api import api as api_module
from kctl.master.control.service import lag_glance
from kctl.master.events import EventFeed
from kctl.master.snapshot import Reduced
from kctl.reduce.partitions import kafka_lag
from kctl.rows.workers import WorkerRow, Workers
from kctl.rpc.fan_out import Failed
from kctl.status import Assessment, Status
from kctl_agent.errors import BadParams, CommandFailed
from kctl_agent.replies.workers import Event
from kctl_agent.rpc.messages import Request
from tests.fleet_snapshot import (
    NOW,
    ROWS,
    TOKEN,
    TOKENS,
    UNIX,
    ask,
    client_of,
    healthy,
    judged,
    partition,
    serving,
    snapshot,
    source_of,
)
from tests.partitions import assessments_of, columns_of


async def test_before_the_first_collection_the_master_is_alive_and_no_resource_is_there() -> None:
    error = {"code": "not_ready", "message": "the first collection is not finished yet", "retriable": True}

    alive = await ask(None, "/healthz")

    assert (alive.status_code, alive.json()) == (200, {"status": "ok"})
    async with client_of(None) as client:
        for resource in ("status", "lag", "storage", "members", "brokers", "topics", "workers"):
            early = await client.get(f"/api/v1/{resource}")
            assert (early.status_code, early.json()) == (503, {"error": error}), resource


CHOSEN = {
    "": [0, 1, 2], "topic=orders&partition=0&partition=2": [0, 2], "topic=other": [], "worker=worker-0": [0, 1],
    "status=stalled": [2], "min_lag=6": [0, 1], "min_lag=7": [], "limit=1": [0], "after=orders/0": [1, 2],
    "after=orders/0&limit=1": [1], "after=p%252Fq/0": [], "after=a%252Fb/0": [0, 1, 2],
}  # fmt: skip


@pytest.mark.shows("the API has filters, pages, ETag, live answers, events, probes, one form of errors")
async def test_rows_are_chosen_and_paged() -> None:
    async with client_of(snapshot()) as client:
        for query, partitions in CHOSEN.items():
            body = (await client.get(f"/api/v1/lag?{query}")).json()

            assert [row["partition"] for row in body["rows"]] == partitions, query
            assert body["total"] == 12, "totals are those of the whole group"


ERRORS = (
    ("POST", "lag", 405, "method_not_allowed"),
    ("GET", "nothing", 404, "not_found"),
    *(
        ("GET", wrong, 400, "bad_params")
        for wrong in ("lag?limit=0", "lag?limit=x", "lag?status=fine", "lag?after=orders", "brokers?after=x")
    ),
)


async def test_every_error_has_one_shape() -> None:
    async with client_of(snapshot(), AccessRights(tokens=TOKENS), "/api/v1") as client:
        for method, path, status, code in ERRORS:
            response = await client.request(method, path, headers={"authorization": f"Bearer {TOKEN}"})

            assert (response.status_code, [*response.json()]) == (status, ["error"]), path
            assert response.json()["error"].keys() == {"code", "message", "retriable"}
            assert response.json()["error"]["code"] == code


@pytest.mark.shows("an attached application's lag is next to the group's in rows, pages and metrics")
async def test_an_attached_application_has_rows_and_series_beside_the_groups() -> None:
    row = partition(0, lag=4, worker="report")
    warned = Assessment(Status.STALLED, "1 of 1 partitions stalled: orders-0; nothing is committed")
    rows = columns_of(row)
    group = GroupSnapshot("main", "attached/report", rows.of_group(0), assessments_of(warned), warned, kafka_lag(rows))
    offsets = replace(healthy().offset_checker, result=columns_of(*ROWS, attached={"attached/report": (row,)}))
    assessments = assessments_of(*healthy().assessments, warned)
    latest = judged(replace(healthy(), offset_checker=offsets, assessments=assessments, attached=(group,)))

    first = (await ask(latest, "/api/v1/lag?limit=1&history=1")).json()
    rest = (await ask(latest, f"/api/v1/lag?after={first['next']}")).json()

    shown = [(each["partition"], each["worker"], each["status"], each.get("attached")) for each in first["rows"]]
    assert shown == [(0, "worker-0", "ok", None), (0, "report", "stalled", True)], "both on one page"
    assert [each["history"] for each in first["rows"]] == [[6], []]
    assert [each["partition"] for each in rest["rows"]] == [1, 2]
    assert (first["verdict"]["level"], first["verdict"]["about"]) == ("degraded", "attached/report")


@pytest.mark.shows("a lag from stale offsets is unknown: `-`, not the last number")
async def test_the_lag_of_stale_offsets_is_unknown_in_every_view() -> None:
    fresh = ROWS
    assert [row.remaining_count for row in healthy().partitions] == [6, 6, None]
    rows = tuple(row._replace(age_seconds=85.0) for row in fresh)

    for partitions, total, unknown in ((rows, None, 3), ((rows[0], *fresh[1:]), 6, 2)):
        latest = replace(healthy(), offset_checker=replace(healthy().offset_checker, result=columns_of(*partitions)))
        glance = lag_glance(latest)

        assert (await ask(latest, "/api/v1/status")).json()["lag"] == total
        assert glance is not None
        assert (glance.total, glance.unknown, glance.worst[0].lag) == (total, unknown, None)


async def test_a_live_question_that_fails_and_one_too_many_are_reported() -> None:
    hold = asyncio.Event()

    async def fleet(_request: Request) -> Reduced[Any]:
        await hold.wait()
        raise CommandFailed("the fleet could not answer")

    async with client_of(source_of(snapshot(), ask=fleet)) as client:
        waiting = [asyncio.create_task(client.get("/api/v1/storage?live=1")) for _ in range(9)]
        done, _ = await asyncio.wait(waiting, timeout=5, return_when=asyncio.FIRST_COMPLETED)
        hold.set()
        answers = await asyncio.gather(*waiting)

    assert [(task.result().status_code, task.result().json()["error"]["code"]) for task in done] == [(503, "busy")]
    assert sorted(answer.json()["error"]["code"] for answer in answers) == ["busy", *["command_failed"] * 8]


async def test_ready_is_when_the_fleet_does_its_work() -> None:
    ready = await ask(healthy(), "/readyz")
    assert (ready.status_code, ready.json()) == (
        200,
        {"status": "ok", "reason": "everything is running; commits come; 7 messages wait in the storage"},
    )
    degraded = await ask(judged(replace(healthy(), supervised=snapshot().supervised)), "/readyz")
    assert (degraded.status_code, degraded.json()["status"]) == (200, "degraded")
    unknown = await ask(None, "/readyz")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (503, "not_ready")
    assert unknown.json()["error"]["message"] == "unknown: the first collection is not finished yet"


async def test_every_answer_has_the_verdict_and_a_collection_that_becomes_old_is_another_answer() -> None:
    now = [NOW]
    async with client_of(source_of(snapshot(), clock=lambda: now[0])) as client:
        fresh = await client.get("/api/v1/lag")
        now[0] += 10
        old = await client.get("/api/v1/lag", headers={"if-none-match": fresh.headers["etag"]})

    assert (fresh.json()["verdict"]["level"], old.json()["verdict"]["level"]) == ("failing", "unknown")


async def test_docs_need_nothing_from_elsewhere_and_name_every_path_and_parameter() -> None:
    async with client_of(snapshot()) as client:
        page = await client.get("/docs")
        [style] = re.findall(r'"(/assets/[^"]+)"', page.text)
        assert (await client.get(style)).headers["content-type"] == "text/css; charset=utf-8"
        paths = (await client.get("/openapi.json")).json()["paths"]

    assert re.findall(r"<script|<style|style=|(?:href|src)=.http", page.text) == []
    described = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
    for path in paths:
        assert f"<code>GET {path}</code>" in page.text
        assert f"`{path}`" in described
    named = {
        each["name"]
        for operations in paths.values()
        for reported in operations.values()
        for each in reported.get("parameters", ())
    }
    assert [name for name in named - {"if-none-match", "last-event-id"} if f"`{name}`" not in described] == []


class OtherHosts:
    me = Host("a", "https://a:1", 1)

    def check_known(self, name: str) -> None:
        if name not in ("a", "b"):
            raise BadParams(f"there is no host {name}")

    def url(self, name: str) -> str | None:
        return {"b": "https://b:1"}.get(name)


async def test_a_fleet_on_several_hosts_is_asked_once_a_second_for_all_or_for_one() -> None:
    now, asked = [NOW], []

    async def answer(request: Request) -> Reduced[Any]:
        asked.append((request.rpc, request.params))
        rows = tuple(WorkerRow(name, "worker", age_seconds=0.5) for name in ("a/worker-0", "b/worker-0"))
        return Reduced(
            Workers(rows), ("a/worker-0", "b", "b/worker-0"), ("a/worker-0",), (Failed("b", "gone", "-"),), 0.5
        )

    async with client_of(source_of(snapshot(), ask=answer, hosts=OtherHosts(), clock=lambda: now[0])) as client:
        first, second = await asyncio.gather(*(client.get("/api/v1/workers?limit=1") for _ in range(2)))
        now[0] += 0.75
        later = (await client.get("/api/v1/workers?after=a/worker-0")).json()
        now[0] += 0.5
        of_one = await client.get("/api/v1/workers?host=b")
        of_none = await client.get("/api/v1/workers?host=c")
        alone = await client.get("/api/v1/workers?local=1")

    assert "etag" not in first.headers
    assert first.json()["rows"] == second.json()["rows"]
    assert [(row["name"], row["host"]) for row in first.json()["rows"]] == [("a/worker-0", "a")]
    assert (first.json()["complete"], first.json()["failed"][0]["from"]) == (False, "b")
    assert (later["age_seconds"], later["rows"][0]["age_seconds"], later["rows"][0]["host"]) == (1.25, 1.25, "b")
    assert (of_one.status_code, of_none.status_code) == (200, 404)
    assert asked == [("workers", {}), ("workers", {"host": "b"})]
    assert [row["host"] for row in alone.json()["rows"]] == ["a", "a"]


async def test_a_log_and_a_history_of_another_host_are_with_that_host() -> None:
    source, headers = source_of(snapshot(), hosts=OtherHosts()), {"authorization": f"Bearer {TOKEN}"}
    for path in ("/api/v1/logs/b%2Fworker-0", "/api/v1/history?worker=b/worker-0"):
        found = await ask(source, path, access=AccessRights(tokens=TOKENS), headers=headers)
        assert (found.status_code, found.json()["error"]["message"]) == (
            404,
            "only its own host knows b/worker-0: ask https://b:1",
        )
    own = await ask(source, "/api/v1/history?worker=a/worker-0", access=AccessRights(tokens=TOKENS), headers=headers)
    assert own.status_code == 200


async def events(response: httpx.Response) -> AsyncIterator[tuple[str, str, Any]]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        elif "event" in fields:
            yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            fields = {}


async def test_events_come_as_they_happen_and_go_on_where_a_listener_left_off() -> None:
    feed = EventFeed()
    feed.publish(Event(UNIX, "state", f"event {number}") for number in range(3))
    async with serving(source_of(snapshot(), feed=feed)) as server, httpx.AsyncClient(timeout=10) as client:
        url = f"{server.url}/api/v1/events"
        async with client.stream("GET", f"{url}?recent=1") as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            stream = events(response)
            name, last, data = await anext(stream)
            assert (name, data["text"]) == ("happened", "event 2")
            assert await anext(stream) == ("collected", "", {"sequence": 7})
            feed.publish([Event(UNIX, "rebalance", "generation 1 -> 2")])
            feed.collected()
            assert (await anext(stream))[2]["kind"] == "rebalance"

        async with client.stream("GET", url, headers={"last-event-id": last}) as response:
            assert (await anext(events(response)))[2]["text"] == "generation 1 -> 2"
        async with client.stream("GET", url, headers={"last-event-id": "0ther-1"}) as response:
            assert (await anext(events(response)))[2]["text"] == "event 0"


async def test_open_streams_are_bounded_and_do_not_hold_up_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_AT_A_TIME", 1)
    async with serving(source_of(snapshot())) as server, httpx.AsyncClient(timeout=10) as client:
        url = f"{server.url}/api/v1/events"
        async with client.stream("GET", url) as response:
            stream = events(response)
            await anext(stream)
            refused = await client.get(url)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "busy")
            server.stop()
            async with asyncio.timeout(3):
                assert [event async for event in stream] == []
