"""`/api/v1/…`: reads. Each answers from the last snapshot and asks nobody, unless `live=1` says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import JSONResponse, StreamingResponse

from kctl.http import answers
from kctl.http.live import Live
from kctl.http.paging import KEYS, MAX_ROWS, page
from kctl.http.source import Source
from kctl.http.stream import Streams
from kctl.master.snapshot import FleetSnapshot
from kctl.reduce import encoded
from kctl.status import Status
from kctl_agent.errors import NotReady
from kctl_agent.wire import JsonObject

__all__ = ["api_router", "present"]

_Strings = Annotated[list[str] | None, Query(max_length=100)]


class _List:
    """The parameters that every list takes."""

    def __init__(
        self,
        live: Annotated[bool, Query(description="Ask the agents now, for at most two seconds.")] = False,
        limit: Annotated[int, Query(ge=1, le=MAX_ROWS, description="The most rows.")] = 1000,
    ) -> None:
        self.live, self.limit = live, limit


def _after(pattern: str) -> Any:
    return Query(max_length=300, pattern=pattern, description="Rows behind this one: `next` of the page before.")


_Lists = Annotated[_List, Depends()]
_AfterPartition = Annotated[str | None, _after(r"^[A-Za-z0-9._-]{1,249}/[0-9]{1,9}$")]
_AfterNode = Annotated[str | None, _after(r"^[0-9]{1,9}$")]
_AfterName = Annotated[str | None, _after(r"^[A-Za-z0-9._-]{1,64}$")]
_IfNoneMatch = Annotated[str | None, Header()]


def present(source: Source) -> FleetSnapshot:
    """The last snapshot.

    Raises:
        NotReady: there is none yet.
    """
    snapshot = source.latest()
    if snapshot is None:
        raise NotReady("the first collection is not finished yet")
    return snapshot


class _OncePerSnapshot:
    """The rows of the last snapshot that was asked for: of thousands of partitions they are encoded once, not for each
    request. They are shared, and never changed."""

    def __init__(self, rows_of: Callable[[FleetSnapshot], list[JsonObject]]) -> None:
        self._rows_of = rows_of
        self._last: tuple[FleetSnapshot, list[JsonObject]] | None = None

    def of(self, snapshot: FleetSnapshot) -> list[JsonObject]:
        if self._last is None or self._last[0] is not snapshot:
            self._last = snapshot, self._rows_of(snapshot)
        return self._last[1]


def api_router(source: Source, streams: Streams, life: str) -> APIRouter:
    """`life` tells this master from its successors."""
    router = APIRouter(prefix="/api/v1")
    live = Live(source)
    offset_rows, lag_rows = _OncePerSnapshot(answers.offset_rows), _OncePerSnapshot(answers.lag_rows)

    def unchanged(snapshot: FleetSnapshot, if_none_match: str | None) -> Response | None:
        tag = f'W/"{life}-{snapshot.sequence}"'
        wanted = [each.strip() for each in (if_none_match or "").split(",")]
        return Response(status_code=304, headers={"etag": tag}) if tag in wanted else None

    def envelope(snapshot: FleetSnapshot) -> JsonObject:
        return {
            "cluster": snapshot.cluster,
            "group": snapshot.group,
            "sequence": snapshot.sequence,
            "age_seconds": max(source.clock() - snapshot.taken_at, 0.0),
        }

    def answer(snapshot: FleetSnapshot, body: JsonObject, is_live: bool = False) -> JSONResponse:
        headers = {"cache-control": "no-cache"} if is_live else _cache_headers(life, snapshot)
        return JSONResponse(body, headers=headers)

    @router.get("/status", summary="The fleet at a glance, and whether it is ready")
    async def status(if_none_match: _IfNoneMatch = None) -> Response:
        snapshot = present(source)
        reasons = answers.not_ready(snapshot, source.clock(), source.unix_clock(), source.max_age_seconds)
        body = answers.status_of(snapshot, reasons, source.feed.last_number)
        return unchanged(snapshot, if_none_match) or answer(snapshot, {**envelope(snapshot), **body})

    @router.get("/lag", summary="Total lag, lag per topic, and every partition with how it is doing")
    async def lag(
        lists: _Lists,
        after: _AfterPartition = None,
        topic: _Strings = None,
        partition: Annotated[list[int] | None, Query(max_length=1000)] = None,
        worker: _Strings = None,
        status: Annotated[list[Status] | None, Query()] = None,
        min_lag: Annotated[int | None, Query(ge=0, description="Rows whose lag is at least so much.")] = None,
        history: Annotated[bool, Query(description="With the lag of the last 15 minutes, every 15 s.")] = False,
        if_none_match: _IfNoneMatch = None,
    ) -> Response:
        snapshot = present(source)
        if not lists.live and (same := unchanged(snapshot, if_none_match)):
            return same
        if lists.live:
            reply = await live.ask("offset_checker")
            offsets, head = reply["result"]["rows"], _head(reply)
            rows, totals = answers.live_lag_rows(snapshot, offsets), answers.lag_totals(offsets)
        else:
            head, rows, totals = head_of(snapshot), lag_rows.of(snapshot), encoded(snapshot.kafka_lag)
        chosen = _chosen(rows, topic=topic, partition=partition, worker=worker, status=status, min_lag=min_lag)
        some, following = page("lag", chosen, after, lists.limit)
        if history:
            some = [{**row, "history": source.sparkline(row["topic"], row["partition"])} for row in some]
        body = {
            **envelope(snapshot),
            **totals,
            **head,
            "rows": _aged(some, head["age_seconds"], lists.live),
            "matching": len(chosen),
            "next": following,
        }
        return answer(snapshot, body, lists.live)

    @router.get("/offsets", summary="One row per partition: committed, end, what remains, and who reads it")
    async def offsets(
        lists: _Lists,
        after: _AfterPartition = None,
        topic: _Strings = None,
        partition: Annotated[list[int] | None, Query(max_length=1000)] = None,
        worker: _Strings = None,
        min_lag: Annotated[int | None, Query(ge=0)] = None,
        if_none_match: _IfNoneMatch = None,
    ) -> Response:
        snapshot = present(source)
        if not lists.live and (same := unchanged(snapshot, if_none_match)):
            return same
        if lists.live:
            reply = await live.ask("offset_checker")
            all_rows, head = reply["result"]["rows"], _head(reply)
        else:
            all_rows, head = offset_rows.of(snapshot), head_of(snapshot)
        chosen = _chosen(all_rows, topic=topic, partition=partition, worker=worker, min_lag=min_lag)
        some, following = page("offsets", chosen, after, lists.limit)
        rows = _aged(some, head["age_seconds"], lists.live)
        body = {**envelope(snapshot), **head, "rows": rows, "matching": len(chosen), "next": following}
        return answer(snapshot, body, lists.live)

    def head_of(snapshot: FleetSnapshot) -> JsonObject:
        """How complete and how old the partitions of a snapshot are."""
        head = snapshot.offset_checker.completeness()
        return {**head, "age_seconds": max(source.clock() - snapshot.taken_at, 0.0)}

    async def result_of(resource: str, snapshot: FleetSnapshot, is_live: bool) -> JsonObject:
        if is_live:
            reply = await live.ask(answers.COMMANDS[resource])
            return {**reply["result"], **_head(reply)}
        return {**answers.result_of(resource, snapshot), "age_seconds": max(source.clock() - snapshot.taken_at, 0.0)}

    @router.get("/storage", summary="Messages and bytes in the storage, and its limit")
    async def storage(
        live: Annotated[bool, Query(description="Ask the agents now.")] = False, if_none_match: _IfNoneMatch = None
    ) -> Response:
        snapshot = present(source)
        if not live and (same := unchanged(snapshot, if_none_match)):
            return same
        body = {**envelope(snapshot), **await result_of("storage", snapshot, live)}
        return answer(snapshot, body, live)

    async def listed(
        resource: str, lists: _List, after: str | None, if_none_match: str | None, **filters: Any
    ) -> Response:
        snapshot = present(source)
        if not lists.live and (same := unchanged(snapshot, if_none_match)):
            return same
        result = await result_of(resource, snapshot, lists.live)
        name, rows = answers.rows_of(resource, result) or ("rows", [])
        chosen = sorted(_chosen(rows, **filters), key=KEYS[resource][0])
        some, following = page(resource, chosen, after, lists.limit)
        body = {**envelope(snapshot), **result, name: some, "matching": len(chosen), "next": following}
        return answer(snapshot, body, lists.live)

    @router.get("/members", summary="The members of the group, as they see themselves, and their leader")
    async def members(
        lists: _Lists, after: _AfterName = None, worker: _Strings = None, if_none_match: _IfNoneMatch = None
    ) -> Response:
        return await listed("members", lists, after, if_none_match, worker=worker)

    @router.get("/brokers", summary="The brokers of the cluster")
    async def brokers(lists: _Lists, after: _AfterNode = None, if_none_match: _IfNoneMatch = None) -> Response:
        return await listed("brokers", lists, after, if_none_match)

    @router.get("/topics", summary="Leader and replicas of each partition")
    async def topics(
        lists: _Lists, after: _AfterPartition = None, topic: _Strings = None, if_none_match: _IfNoneMatch = None
    ) -> Response:
        return await listed("topics", lists, after, if_none_match, topic=topic)

    @router.get("/workers", summary="Workers and sinkers, as they and as their supervisor see them")
    async def workers(
        lists: _Lists,
        after: _AfterName = None,
        worker: _Strings = None,
        kind: _Strings = None,
        state: _Strings = None,
        if_none_match: _IfNoneMatch = None,
    ) -> Response:
        return await listed("workers", lists, after, if_none_match, name=worker, kind=kind, state=state)

    @router.get(
        "/events",
        summary="What happens, as server-sent events",
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}}},
    )
    async def events(
        recent: Annotated[int, Query(ge=0, le=500, description="Begin with so many of the last events.")] = 0,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> StreamingResponse:
        """`event: happened` with what happened as JSON; `event: collected` when there are new figures. Who gives
        `Last-Event-ID` gets what came since; the last 500 are kept."""
        lines = streams.begin(last_event_id, recent)
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(lines, media_type="text/event-stream", headers=headers)

    return router


def _cache_headers(life: str, snapshot: FleetSnapshot) -> dict[str, str]:
    return {"etag": f'W/"{life}-{snapshot.sequence}"', "cache-control": "no-cache"}


def _head(reply: JsonObject) -> JsonObject:
    return {
        **{name: reply.get(name) for name in ("complete", "asked", "answered", "failed", "stopped", "age_seconds")},
        "live": True,
    }


def _aged(rows: list[JsonObject], age_seconds: float | None, is_live: bool) -> list[JsonObject]:
    """An age in a snapshot is that of the moment when it was taken."""
    if is_live:
        return rows
    return [
        {**row, "age_seconds": None if row["age_seconds"] is None else row["age_seconds"] + (age_seconds or 0.0)}
        for row in rows
    ]


def _chosen(rows: list[JsonObject], min_lag: int | None = None, **wanted: Any) -> list[JsonObject]:
    """The rows whose fields have one of the wanted values; None wants all."""
    filters: list[tuple[str, Callable[[Any], bool]]] = [
        (name, frozenset(values).__contains__) for name, values in wanted.items() if values is not None
    ]
    if min_lag is not None:
        filters.append(("remaining_count", lambda lag: lag is not None and lag >= min_lag))
    return [row for row in rows if all(passes(row.get(name)) for name, passes in filters)] if filters else rows
