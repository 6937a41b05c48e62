"""`/api/v1/groups`: what is known of every group, sorted, and of one its members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from kctl.errors import BrokerUnreachable
from kctl.groups.snapshot import ClusterSnapshot, GroupSnapshot
from kctl.http import Access, GroupsApp, GroupsSource
from kctl.kafka.groups import Group, Member
from kctl.reduce import GroupStats, PartitionRow, ResetPolicy
from kctl.reduce.kafka_lag import totals
from kctl.reduce.offset_checker import Partitions
from kctl.status import Assessment, Status, of_group

pytestmark = pytest.mark.anyio


def group(name: str, lag: int | None, growth: float | None = None, status: Status = Status.OK) -> GroupSnapshot:
    end = None if lag is None else 4 + lag
    rows = (PartitionRow("orders", 0, 0, 4, None, end, None, None, None, 1.0, ResetPolicy.NONE),)
    assessed = (Assessment(status, "so it is", 2.5, growth),)
    return GroupSnapshot(
        "main",
        name,
        rows,
        assessed,
        of_group(rows, assessed),
        totals(Partitions(rows)),
        GroupStats("stable", 1),
        "classic",
        1,
    )


def cluster(name: str, *groups: GroupSnapshot, errors: dict[str, str] | None = None) -> ClusterSnapshot:
    return ClusterSnapshot(name, groups, 1000.0, 1.7e9, 0.1, {"groups": not errors}, {}, errors or {}, not errors)


def describe(_cluster: str, name: str) -> Group:
    if name == "lost":
        raise BrokerUnreachable("nobody answers")
    members = (Member("m-1", "c", "/h", None, {"orders": (0, 1)}), Member("m-2", "c", "/h", "static", {}))
    return Group(name, 1, "Stable", "classic", "consumer", "range", members)


async def ask(path: str, *clusters: ClusterSnapshot | None, **params: Any) -> httpx.Response:
    def latest() -> Sequence[ClusterSnapshot | None]:
        return clusters

    source = GroupsSource(
        latest=latest,
        describe=describe,
        render_metrics=lambda _accept, _encoding: (b"", "text/plain", False),
        ready_metrics=lambda _accept, _encoding: None,
    )
    transport = httpx.ASGITransport(GroupsApp(source, Access()).guarded, raise_app_exceptions=False)
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
    body = (await ask("/api/v1/groups", MAIN, sort=sort)).json()

    assert [row["group"] for row in body["rows"]] == expected


async def test_each_cluster_has_its_age_and_what_failed_in_it() -> None:
    body = (await ask("/api/v1/groups", MAIN, cluster("other", errors={"groups": "away"}), None, limit=1)).json()

    assert [(each["cluster"], each["groups"], each["errors"]) for each in body["clusters"]] == [
        ("main", 3, {}),
        ("other", 0, {"groups": "away"}),
    ]
    assert (body["total"], len(body["rows"])) == (3, 1)
    first = body["rows"][0]
    assert (first["lag"], first["state"], first["members"], first["status"]) == (6, "stable", 1, "ok")
    assert first["age_seconds"] >= 1.0
    assert (await ask("/api/v1/groups", MAIN, cluster="other")).json()["rows"] == []


async def test_of_one_group_there_are_its_partitions_and_its_members_with_the_lag_of_what_they_hold() -> None:
    body = (await ask("/api/v1/groups/a", MAIN)).json()

    [row] = body["rows"]
    assert (row["current_offset"], row["remaining_count"], row["status"]) == (4, 6, "ok")
    assert [(each["member_id"], each["lag"], each["assigned"]) for each in body["members"]] == [
        ("m-1", 6, {"orders": [0, 1]}),
        ("m-2", None, {}),
    ]


async def test_where_no_coordinator_answers_the_members_are_not_known_and_the_reason_is_given() -> None:
    body = (await ask("/api/v1/groups/lost", cluster("main", group("lost", 6)))).json()

    assert (body["lag"], body["members"], body["members_error"]) == (6, None, "nobody answers")


async def test_a_group_that_is_not_collected_is_not_found() -> None:
    response = await ask("/api/v1/groups/nobody", MAIN)

    assert (response.status_code, response.json()["error"]["code"]) == (404, "group_missing")


async def test_a_group_id_with_slashes_and_quotes_is_found() -> None:
    response = await ask("/api/v1/groups/a%2Fb%20%22c%22", cluster("main", group('a/b "c"', 1)))

    assert response.json()["group"] == 'a/b "c"'
