"""What several pages ask of one snapshot is answered once; another question, or one of another snapshot, anew."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import replace

import httpx
import pytest

from kctl.http.api import kept
from kctl.http.app import create_app
from kctl.master.snapshot import FleetSnapshot
from tests.fleet_snapshot import NOW, snapshot, source_of

pytestmark = pytest.mark.anyio


class Moving:
    """A snapshot, and a clock that goes on with each look, so that no two answers that are made are the same."""

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
    transport = httpx.ASGITransport(create_app(source).guarded)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost/api/v1") as client:
        yield client


@pytest.mark.parametrize("path", ["lag?limit=2000", "status", "workers"])
async def test_what_is_asked_again_of_a_snapshot_is_the_same_answer(client: httpx.AsyncClient, path: str) -> None:
    first, second = await client.get(path), await client.get(path)

    assert first.status_code == 200
    assert (second.content, second.headers) == (first.content, first.headers)


async def test_another_question_another_snapshot_and_a_later_one_are_answered_anew(
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
