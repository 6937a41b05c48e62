"""The route `/api/v1/lag`, which returns a row for each partition."""

import asyncio
from functools import partial
from typing import Annotated

from fastapi import Query, Request, Response

from kctl.http.api.answers import lag_rows, live_head
from kctl.http.api.api import Api
from kctl.http.api.listing import IfNoneMatch, Lists, Numbers, Rows, Strings, after_of, listed, older, router
from kctl.http.api.paging import Key
from kctl.master.snapshot import FleetSnapshot
from kctl.reduce.partitions import kafka_lag
from kctl.rows.partitions import Offsets
from kctl.status import Status
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.wire import JsonObject

_KEY = Key.of(Offsets, "rows", ("topic", "partition"))


@router.get("/lag", summary="Total lag, lag per topic, and the status of every partition")
async def lag(
    request: Request,
    lists: Lists,
    after: Annotated[str | None, after_of(_KEY)] = None,
    topic: Strings = None,
    partition: Numbers = None,
    worker: Strings = None,
    status: Annotated[list[Status] | None, Query()] = None,
    min_lag: Annotated[int | None, Query(ge=0, description="Only rows with at least this lag.")] = None,
    history: Annotated[bool, Query(description="Add the lag of the last 15 minutes, every 15 s.")] = False,
    if_none_match: IfNoneMatch = None,
) -> Response:
    filters = {"topic": topic, "partition": partition, "worker": worker, "status": status, "min_lag": min_lag}
    completed = partial(_completed, has_history=history)
    return await listed(request, "lag", _KEY, lag_of, lists, after, if_none_match, filters, completed=completed)


async def lag_of(api: Api, snapshot: FleetSnapshot, question: JsonObject | None) -> tuple[JsonObject, Rows]:
    """Returns the answer's head and its rows. If `question` is None, head and rows come from `snapshot`, otherwise from
    the agents. Assessments always come from the hosts' last snapshots, because they compare offsets over time."""
    if question is None:
        head = {**snapshot.offset_checker.completeness(), "age_seconds": api.age_seconds(snapshot)}
        return {**encoded(snapshot.kafka_lag), **head}, api.lag_rows(snapshot)
    reduced = await api.ask("offset_checker", question)
    totals = await asyncio.to_thread(kafka_lag, reduced.result)
    rows = await asyncio.to_thread(lag_rows, snapshot, reduced.result, reduced.judged)
    return {**encoded(totals), **live_head(reduced)}, rows


def _completed(api: Api, head: JsonObject, rows: Rows, *, has_history: bool) -> Rows:
    if has_history:
        lines = api.source.history.sparklines([(row["topic"], row["partition"]) for row in rows])
        # Attached applications have no history.
        rows = [{**row, "history": [] if row.get("attached") else lags} for row, lags in zip(rows, lines, strict=True)]
    # Ages in a snapshot refer to the moment it was taken.
    return rows if "live" in head else [older(row, head["age_seconds"]) for row in rows]
