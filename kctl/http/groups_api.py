"""Routes for groups: all groups of the clusters, one group with its current members, and a group's advice.
`groups_app` serves them for `kctl exporter`, without a fleet."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse
from pydantic import StringConstraints

from kctl import __version__
from kctl.errors import ClusterMissing, GroupMissing, KctlError, UsageError
from kctl.groups.advising import GroupAdvisers
from kctl.groups.snapshot import ClusterSnapshot, GroupSnapshot
from kctl.http.access import AccessRights
from kctl.http.errors import RESPONSES, answer_errors_in_one_shape, known_parameters
from kctl.http.guard import Guard
from kctl.http.pages import asset, healthz, home, metrics, readyz
from kctl.http.server import App
from kctl.kafka.groups import Group
from kctl.rows.advice import Answer
from kctl.status import Status
from kctl_agent.errors import Busy, NotReady
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.wire import JsonObject

_MAX_PATTERN = 300
"""Maximum characters: callers without a token may send patterns, and each takes memory and time to compile."""
_AT_A_TIME = 2
Latest = Mapping[str, ClusterSnapshot | None]  # cluster -> its last snapshot; None before the first
ClusterOfGroup = Annotated[
    str | None, Query(max_length=300, description="Required if several clusters have a group of this name.")
]
Sort = Literal["group", "lag", "lag_seconds", "growth", "status"]

router = APIRouter(prefix="/api/v1", dependencies=[Depends(known_parameters)])


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsView:
    latest: Callable[[], Latest]
    describe: Callable[[str, str], Group]
    """Asks the cluster's brokers for a group and its members. Blocks; raises KctlError."""
    advisers: GroupAdvisers = field(default_factory=GroupAdvisers)
    clock: Callable[[], float] = time.monotonic
    asking: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_A_TIME))
    """Limits `describe`, which opens a connection each time."""


@router.get("/groups", summary="Every group of the clusters: state, members, lag, status")
async def groups(
    request: Request,
    cluster: Annotated[str | None, Query(max_length=300, description="Only groups of this cluster.")] = None,
    group: Annotated[
        list[Annotated[str, StringConstraints(max_length=_MAX_PATTERN)]] | None,
        Query(max_length=20, description="Only groups that match one of these globs, such as `payments-*`."),
    ] = None,
    sort: Annotated[Sort, Query(description="Sort by this, largest or worst first.")] = "group",
    limit: Annotated[int, Query(ge=1, le=10_000, description="The maximum number of rows.")] = 1000,
) -> JSONResponse:
    view: GroupsView = request.app.state.groups
    chosen = _chosen(view, cluster)
    return JSONResponse(await asyncio.to_thread(_listed, chosen, group, sort, limit, view.clock()))


@router.get("/groups/{group:path}", summary="One group: its partitions, and its members according to its coordinator")
async def group(request: Request, group: str, cluster: ClusterOfGroup = None) -> JSONResponse:
    view: GroupsView = request.app.state.groups
    snapshot, found = _only(_chosen(view, cluster), group)
    if view.asking.locked():
        raise Busy(f"the brokers are being asked for {_AT_A_TIME} groups already: retry in a moment")
    async with view.asking:
        return JSONResponse(await asyncio.to_thread(_detailed, view, snapshot, found))


@router.get("/group-advice", summary="How many members a group needs, and why; 503 while it is unknown")
async def group_advice(
    request: Request,
    group: Annotated[str, Query(max_length=300, description="The full name of the group.")],
    cluster: ClusterOfGroup = None,
) -> JSONResponse:
    """Returns the advice for a group. kctl watches a group from your first request, so the first answer is 503."""
    view: GroupsView = request.app.state.groups
    _, found = _only(_chosen(view, cluster), group)
    advice = view.advisers.advice(found)
    if advice.answer is Answer.UNKNOWN:
        raise NotReady(advice.reason)
    return JSONResponse(encoded(advice))


def reason_not_ready(cluster: str, snapshot: ClusterSnapshot | None) -> str | None:
    if snapshot is None:
        return f"the first poll of cluster {cluster} is not finished yet"
    if snapshot.is_ready:
        return None
    why = "; ".join(f"{part}: {error}" for part, error in snapshot.errors.items())
    return f"cluster {cluster} has not been polled completely yet: {why}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupsSource(GroupsView):
    """The data behind the routes of `kctl exporter`. Belongs to one event loop."""

    metrics: Callable[[str, str], Awaitable[tuple[bytes, str, bool]]]

    def ready(self) -> JsonObject:
        """Returns the answer to `/readyz`. Raises NotReady if a cluster's groups are not yet known."""
        latest = self.latest().items()
        if reasons := [reason for name, snapshot in latest if (reason := reason_not_ready(name, snapshot))]:
            raise NotReady("; ".join(reasons))
        return {"status": "ready"}


def groups_app(source: GroupsSource, access: AccessRights) -> App:
    """Makes the HTTP application of `kctl exporter`. `Guard` checks every request, as for a fleet."""
    app = FastAPI(title="kctl exporter", version=__version__, docs_url=None, redoc_url=None, responses=RESPONSES)
    app.state.source = app.state.groups = source
    app.state.serves = lambda: "groups"
    app.get("/", summary="The page for people", response_class=HTMLResponse)(home)
    app.get("/assets/{digest}/{name:path}", include_in_schema=False)(asset)
    app.get("/healthz", summary="The exporter is alive")(healthz)
    app.get("/readyz", summary="Every cluster has been polled completely at least once")(readyz)
    app.get("/metrics", summary="All metrics for Prometheus", response_class=PlainTextResponse)(metrics)
    app.include_router(router)
    answer_errors_in_one_shape(app)
    return App(Guard(app, access))


def _chosen(view: GroupsView, cluster: str | None) -> Latest:
    latest = view.latest()
    if not latest:
        raise HTTPException(404, "this master does not collect all groups: set `exporter.all_groups = true`")
    if cluster is None:
        return latest
    if cluster not in latest:
        known = ", ".join(latest)
        raise ClusterMissing(f"cluster `{cluster}` is not collected; the collected clusters are: {known}")
    return {cluster: latest[cluster]}


def _only(latest: Latest, group: str) -> tuple[ClusterSnapshot, GroupSnapshot]:
    found = [
        (snapshot, each)
        for snapshot in latest.values()
        if snapshot is not None
        for each in snapshot.groups
        if each.group == group
    ]
    if len(found) > 1:
        names = ", ".join(snapshot.cluster for snapshot, _ in found)
        raise UsageError(f"the clusters {names} each have a group `{group}`: name the cluster that you mean")
    if found:
        return found[0]
    # While a cluster cannot list its groups, a known group may be missing.
    unlisted = {name: each.errors.get("groups") for name, each in latest.items() if each is not None}
    if reasons := [why for name, each in latest.items() if (why := reason_not_ready(name, each) or unlisted[name])]:
        raise NotReady(f"it is not known yet whether group `{group}` exists: {'; '.join(reasons)}")
    raise GroupMissing(f"there is no group `{group}` among the collected groups; `kctl groups` lists them")


def _listed(latest: Latest, patterns: Sequence[str] | None, sort: Sort, limit: int, now: float) -> JsonObject:
    # `fnmatch` would cache 32,768 of the callers' patterns; `re` caches 512.
    fitting = [re.compile(translate(pattern)).match for pattern in patterns or ()]
    rows = [
        _row(each, now - snapshot.taken_at)
        for snapshot in latest.values()
        if snapshot is not None
        for each in snapshot.groups
        if not fitting or any(fits(each.group) for fits in fitting)
    ]
    rows.sort(key=_KEYS[sort])
    clusters = [_cluster(name, snapshot, now) for name, snapshot in latest.items()]
    lags = [row["lag"] for row in rows if row["lag"] is not None]
    return {
        "clusters": clusters,
        "total": len(rows),
        "lag": sum(lags) if lags else None,
        "statuses": dict(Counter(row["status"] for row in rows)),
        "rows": rows[:limit],
    }


def _cluster(name: str, snapshot: ClusterSnapshot | None, now: float) -> JsonObject:
    return {
        "cluster": name,
        "is_ready": snapshot is not None and snapshot.is_ready,
        "not_ready": reason_not_ready(name, snapshot),
        "age_seconds": None if snapshot is None else max(now - snapshot.taken_at, 0.0),
        "up": {} if snapshot is None else dict(snapshot.up),
        "errors": {} if snapshot is None else dict(snapshot.errors),
        "groups": 0 if snapshot is None else len(snapshot.groups),
    }


def _row(group: GroupSnapshot, taken_ago: float) -> JsonObject:
    assessment = group.assessment
    oldest = group.age_seconds
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
    return lambda row: (row[name] is None, -(row[name] or 0), *_name(row))


def _name(row: JsonObject) -> tuple[object, ...]:
    return row["cluster"], row["group"]


_QUIET = Status.REBALANCING.severity
"""Groups with this severity or less are healthy, and sorted by lag alone."""
_KEYS: dict[Sort, Callable[[JsonObject], tuple[object, ...]]] = {
    "group": _name,
    "lag": _largest("lag"),
    "lag_seconds": _largest("lag_seconds"),
    "growth": _largest("growth_per_second"),
    "status": lambda row: (-max(Status(row["status"]).severity, _QUIET), -(row["lag"] or 0), *_name(row)),
}


def _detailed(view: GroupsView, snapshot: ClusterSnapshot, group: GroupSnapshot) -> JsonObject:
    taken_ago = view.clock() - snapshot.taken_at
    rows = [
        {
            **row,
            "age_seconds": None if row["age_seconds"] is None else row["age_seconds"] + max(taken_ago, 0.0),
            **assessment.to_json(),
        }
        for row, assessment in zip(group.partitions.to_json("start"), group.assessments, strict=True)
    ]
    for row in rows:
        del row["worker"]
    try:
        members, error = _members(view.describe(group.cluster, group.group), group), None
    except KctlError as problem:
        members, error = None, str(problem)
    return {**_row(group, taken_ago), "rows": rows, "members": members, "members_error": error}


def _members(described: Group, group: GroupSnapshot) -> list[JsonObject] | None:
    if described.error is not None:
        raise described.error
    if described.members is None:
        return None
    lags = {(row.topic, row.partition): row.remaining_count for row in group.partitions}
    found = []
    for member in described.members:
        held = [(topic, number) for topic, numbers in (member.assigned or {}).items() for number in numbers]
        known = [lag for key in held if (lag := lags.get(key)) is not None]
        found.append({**member._asdict(), "lag": sum(known) if known and group.type != "share" else None})
    return found
