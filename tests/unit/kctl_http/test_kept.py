from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from kctl.http.api import kept
from kctl.http.api.api import Api
from kctl.http.api.kept import KeptAnswers
from kctl.master.snapshot import FleetSnapshot
from tests.fleet_snapshot import NOW, client_of, snapshot, source_of


class Moving:
    """A snapshot, and a clock that advances at each look, so that no two computed answers are equal."""

    def __init__(self) -> None:
        self.latest: FleetSnapshot = snapshot()
        self._ticks = itertools.count()

    def clock(self) -> float:
        return NOW + next(self._ticks) / 1000


@pytest.fixture
def moving() -> Moving:
    return Moving()


@pytest.fixture
async def client(moving: Moving) -> AsyncIterator[httpx.AsyncClient]:
    source = replace(source_of(moving.latest), latest=lambda: moving.latest, clock=moving.clock)
    async with client_of(source, path="/api/v1") as client:
        yield client


@pytest.mark.parametrize("path", ["lag?limit=2000", "status", "workers"])
async def test_what_is_asked_again_of_a_snapshot_is_the_same_answer(client: httpx.AsyncClient, path: str) -> None:
    first, second = await client.get(path), await client.get(path)

    assert first.status_code == 200
    assert (second.content, second.headers) == (first.content, first.headers)


async def test_another_question_another_snapshot_and_a_later_one_are_not_answered_from_the_cache(
    client: httpx.AsyncClient, moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [(await client.get("lag?limit=2")).content]
    bodies.append((await client.get("lag?limit=1")).content)
    moving.latest = replace(moving.latest, sequence=8)
    bodies.append((await client.get("lag?limit=2")).content)
    monkeypatch.setattr(kept, "KEPT_BYTES", 0)
    bodies += [(await client.get("status")).content for _ in range(2)]

    assert len(set(bodies)) == 5
    assert b'"sequence":8' in bodies[2]


async def test_what_a_browser_has_is_a_304_and_errors_are_not_kept(client: httpx.AsyncClient) -> None:
    tag = (await client.get("lag")).headers["etag"]

    same = await client.get("lag", headers={"if-none-match": tag})
    wrong = [await client.get("lag?limit=0") for _ in range(2)]
    older = await client.get("lag", headers={"if-none-match": 'W/"other"'})

    assert [each.status_code for each in (same, *wrong, older)] == [304, 400, 400, 200]
    assert (same.content, same.headers["etag"]) == (b"", tag)


class Slow:
    """Answers once it may, behind kept answers; the first question can fail."""

    def __init__(self, *, fails: bool = False) -> None:
        self.begun, self.may_answer = asyncio.Event(), asyncio.Event()
        self.asked, self._fails = 0, fails
        self._kept = KeptAnswers(self, cast("Api", SimpleNamespace(current_tag=lambda: b"tag")))

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        self.asked += 1
        self.begun.set()
        await self.may_answer.wait()
        if self._fails:
            self._fails = False
            raise ConnectionError("a defect")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all"})

    async def ask(self, takes: asyncio.Event | None = None) -> bytes:
        """The body, for a client that reads once `takes` is set."""
        body = []

        async def send(message: Any) -> None:
            if takes is not None:
                await takes.wait()
            body.append(message.get("body", b""))

        scope = {"type": "http", "method": "GET", "path": "/api/v1/lag", "query_string": b"", "headers": []}
        await self._kept(scope, cast("Any", None), send)
        return b"".join(body)


@pytest.mark.shows("ten pages that ask for the same snapshot share one answer")
async def test_all_who_ask_at_the_same_moment_are_answered_once_though_the_first_leaves() -> None:
    slow = Slow()
    first = asyncio.create_task(slow.ask())
    await slow.begun.wait()
    others = [asyncio.create_task(slow.ask()) for _ in range(9)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    slow.may_answer.set()

    assert [await each for each in others] == [b"all"] * 9
    assert slow.asked == 1


async def test_a_client_that_does_not_read_delays_no_others_and_after_a_failure_it_is_asked_again() -> None:
    slow, takes = Slow(), asyncio.Event()
    stalled = asyncio.create_task(slow.ask(takes))
    await slow.begun.wait()
    slow.may_answer.set()

    async with asyncio.timeout(10):
        assert await slow.ask() == b"all"
    takes.set()
    assert await stalled == b"all"

    slow = Slow(fails=True)
    slow.may_answer.set()
    with pytest.raises(ConnectionError):
        await slow.ask()
    assert await slow.ask() == b"all"
