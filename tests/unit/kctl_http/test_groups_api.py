from __future__ import annotations

import asyncio
import fnmatch
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import httpx
import pytest

from kctl.groups.snapshot import ClusterSnapshot
from kctl.http.access import AccessRights
from kctl.http.groups_api import groups_app
from kctl.kafka.groups import Group
from kctl.status import Status
from tests.served_groups import cluster, group, source_of_groups


async def ask(path: str, *clusters: ClusterSnapshot, unpolled: Sequence[str] = (), **params: Any) -> httpx.Response:
    latest = {each.cluster: each for each in clusters} | dict.fromkeys(unpolled)
    transport = httpx.ASGITransport(
        groups_app(source_of_groups(lambda: latest), AccessRights()).guarded, raise_app_exceptions=False
    )
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        return await client.get(path, params=params)


MAIN = cluster(
    "main",
    group("a", 6, growth=1.0),
    group("b", None, status=Status.UNKNOWN),
    group("c", 9, growth=-3.0, status=Status.STALLED),
)
SORTED = {
    "group": ["a", "b", "c"],
    "lag": ["c", "a", "b"],
    "growth": ["a", "c", "b"],
    "lag_seconds": ["a", "b", "c"],
    "status": ["c", "b", "a"],
}


@pytest.mark.parametrize(("sort", "expected"), SORTED.items())
async def test_groups_are_sorted_as_asked_and_what_is_not_known_comes_last(sort: str, expected: list[str]) -> None:
    body = (await ask("/api/v1/groups", MAIN, cluster("other", group("d", 1)), sort=sort, cluster="main")).json()

    assert [row["group"] for row in body["rows"]] == expected


@pytest.mark.shows("patterns that callers send do not stay in memory")
async def test_long_patterns_are_rejected_and_none_is_kept() -> None:
    fits = await ask("/api/v1/groups", MAIN, group=["a*" + "*" * 298, "b"])
    refused = await ask("/api/v1/groups", MAIN, group=["a", "b" * 301])

    assert [row["group"] for row in fits.json()["rows"]] == ["a", "b"]
    message = "query.group.1: String should have at most 300 characters"
    assert refused.status_code == 400
    assert refused.json()["error"] == {"code": "bad_params", "message": message, "retriable": False}

    kept = fnmatch._compile_pattern.cache_info().currsize  # type: ignore[attr-defined]

    await ask("/api/v1/groups", MAIN, group=[f"sent-{number}-*" for number in range(20)])

    assert fnmatch._compile_pattern.cache_info().currsize == kept  # type: ignore[attr-defined]


@pytest.mark.shows("brokers are asked for members of at most two groups at a time")
async def test_only_a_few_concurrent_callers_reach_the_brokers_and_the_others_are_rejected() -> None:
    began, may_end = threading.Semaphore(0), threading.Event()

    def describe(_cluster: str, name: str) -> Group:
        began.release()
        assert may_end.wait(10)
        return Group(name, coordinator=1, state="stable")

    app = groups_app(replace(source_of_groups(lambda: {"main": MAIN}), describe=describe), AccessRights()).guarded
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        asking = [asyncio.create_task(client.get("/api/v1/groups/a")) for _ in range(2)]
        for _ in asking:
            assert await asyncio.to_thread(began.acquire, timeout=10)
        refused = [await client.get("/api/v1/groups/b") for _ in range(20)]
        listed = await client.get("/api/v1/groups")
        may_end.set()
        answered = [await each for each in asking]

        assert {(each.status_code, each.json()["error"]["code"]) for each in refused} == {(503, "busy")}
        assert [each.status_code for each in (listed, *answered, await client.get("/api/v1/groups/b"))] == [200] * 4


async def test_a_group_is_found_by_any_id_and_by_its_cluster_if_two_have_it() -> None:
    other = cluster("other", replace(group("a", 77), cluster="other"))

    refused = await ask("/api/v1/groups/a", MAIN, other)
    named = await ask("/api/v1/groups/a", MAIN, other, cluster="other")

    assert (refused.status_code, "main, other" in refused.json()["error"]["message"]) == (400, True)
    assert (named.json()["cluster"], named.json()["lag"]) == ("other", 77)

    response = await ask("/api/v1/groups/a%2Fb%20%22c%22", cluster("main", group('a/b "c"', 1)))

    assert response.json()["group"] == 'a/b "c"'
