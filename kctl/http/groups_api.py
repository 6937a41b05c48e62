"""`/api/v1/groups` and `/api/v1/groups/{group}`: all groups of the clusters; of one also its members, asked for now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import JSONResponse

from kctl.errors import GroupMissing, KctlError
from kctl.groups.snapshot import ClusterSnapshot, GroupSnapshot
from kctl.kafka.groups import Group
from kctl.status import Status
from kctl_agent.wire import JsonObject

__all__ = ["GroupsView", "router"]

MAX_GROUPS = 10_000
Sort = Literal["group", "lag", "lag_seconds", "growth", "status"]

router = APIRouter(prefix="/api/v1")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsView:
    """What these routes answer from, `app.state.groups`."""

    latest: Callable[[], Sequence[ClusterSnapshot | None]]
    """The last snapshot of each cluster; None before its first."""
    describe: Callable[[str, str], Group]
    """Asks the cluster's brokers for a group and its members; blocks, raises KctlError."""
    clock: Callable[[], float]
    """That of `ClusterSnapshot.taken_at`."""


@router.get("/groups", summary="Every group of the clusters: state, members, lag, status")
async def groups(
    request: Request,
    cluster: Annotated[str | None, Query(max_length=300, description="Only this cluster's.")] = None,
    sort: Annotated[Sort, Query(description="By this, the largest or worst first.")] = "group",
    limit: Annotated[int, Query(ge=1, le=MAX_GROUPS, description="The most rows.")] = 1000,
) -> JSONResponse:
    view: GroupsView = request.app.state.groups
    chosen = [each for each in view.latest() if each is not None and cluster in (None, each.cluster)]
    return JSONResponse(await asyncio.to_thread(_listed, chosen, sort, limit, view.clock()))


@router.get(
    "/groups/{group:path}", summary="One group: its partitions, and its members as its coordinator has them now"
)
async def group(
    request: Request,
    group: str,
    cluster: Annotated[
        str | None, Query(max_length=300, description="Where several have a group of that name.")
    ] = None,
) -> JSONResponse:
    view: GroupsView = request.app.state.groups
    for snapshot in view.latest():
        if snapshot is None or cluster not in (None, snapshot.cluster):
            continue
        found = next((each for each in snapshot.groups if each.group == group), None)
        if found is not None:
            return JSONResponse(await asyncio.to_thread(_detailed, view, snapshot, found))
    raise GroupMissing(f"there is no group {group} among those that are collected: see /api/v1/groups")


def _listed(snapshots: Sequence[ClusterSnapshot], sort: Sort, limit: int, now: float) -> JsonObject:
    rows = [_row(each, now - snapshot.taken_at) for snapshot in snapshots for each in snapshot.groups]
    clusters = [
        {
            "cluster": each.cluster,
            "is_ready": each.is_ready,
            "age_seconds": max(now - each.taken_at, 0.0),
            "up": dict(each.up),
            "errors": dict(each.errors),
            "groups": len(each.groups),
        }
        for each in snapshots
    ]
    rows.sort(key=_KEYS[sort])
    return {"clusters": clusters, "total": len(rows), "rows": rows[:limit]}


def _row(group: GroupSnapshot, taken_ago: float) -> JsonObject:
    assessment = group.assessment
    oldest = max((row.age_seconds for row in group.partitions), default=None)
    return {
        "cluster": group.cluster,
        "group": group.group,
        "type": group.type,
        "state": None if group.stats is None else group.stats.state,
        "members": None if group.stats is None else group.stats.members,
        "coordinator": group.coordinator,
        "partitions": len(group.partitions),
        "lag": group.lag.total,
        "lag_seconds": assessment.lag_seconds,
        "growth_per_second": assessment.growth_per_second,
        "catchup_seconds": assessment.catchup_seconds,
        "status": assessment.status.value,
        "reason": assessment.reason,
        "age_seconds": None if oldest is None else oldest + max(taken_ago, 0.0),
    }


def _largest(name: str) -> Callable[[JsonObject], tuple[object, ...]]:
    """The largest first; what is not known last."""
    return lambda row: (row[name] is None, -(row[name] or 0), row["cluster"], row["group"])


_QUIET = Status.REBALANCING.severity
"""From here down nothing is wrong: such groups are sorted by their lag alone."""
_KEYS: dict[Sort, Callable[[JsonObject], tuple[object, ...]]] = {
    "group": lambda row: (row["cluster"], row["group"]),
    "lag": _largest("lag"),
    "lag_seconds": _largest("lag_seconds"),
    "growth": _largest("growth_per_second"),
    "status": lambda row: (
        -max(Status(row["status"]).severity, _QUIET),
        -(row["lag"] or 0),
        row["cluster"],
        row["group"],
    ),
}


def _detailed(view: GroupsView, snapshot: ClusterSnapshot, group: GroupSnapshot) -> JsonObject:
    """With `members` null, and why, where the coordinator does not answer."""
    taken_ago = view.clock() - snapshot.taken_at
    rows = [
        {
            **row.to_json(),
            "start": row.start,
            "age_seconds": row.age_seconds + max(taken_ago, 0.0),
            **assessment.to_json(),
        }
        for row, assessment in zip(group.partitions, group.assessments, strict=True)
    ]
    for row in rows:
        del row["worker"]
    members, error = None, None
    try:
        described = view.describe(group.cluster, group.group)
        members = _members(described, group)
    except KctlError as problem:
        error = str(problem)
    return {**_row(group, taken_ago), "rows": rows, "members": members, "members_error": error}


def _members(described: Group, group: GroupSnapshot) -> list[JsonObject] | None:
    """Each with the lag of what it holds; a partition without a known lag is not counted."""
    if described.error is not None:
        raise described.error
    if described.members is None:
        return None
    lags = {(row.topic, row.partition): row.lag for row in group.partitions}
    found = []
    for member in described.members:
        held = [(topic, number) for topic, numbers in (member.assigned or {}).items() for number in numbers]
        known = [lag for key in held if (lag := lags.get(key)) is not None]
        found.append(
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                "assigned": None
                if member.assigned is None
                else {topic: list(numbers) for topic, numbers in member.assigned.items()},
                "lag": sum(known) if known and group.type != "share" else None,
            }
        )
    return found
