"""`/api/v1/history`: data for charts of the last day, for the fleet, a topic, a partition, a process or a group."""

import math
from typing import Annotated

from fastapi import HTTPException, Query, Request, Response

from kctl.http.api.api import api_of
from kctl.http.api.listing import IfNoneMatch, router
from kctl.http.errors import Error
from kctl.master.history import FLEET, KEPT_SECONDS, Subject
from kctl.rows.columns import Reals
from kctl_agent.replies.encode import encoded

_NO_GROUP = "there is no history of this group: kctl keeps it only for the 20 groups with the most lag"
_NAME = Query(max_length=249)


@router.get(
    "/history",
    summary="The last day as columns: lag, rates, batch seconds, memory, and what happened",
    responses={404: {"model": Error, "description": "There is no history of this topic, partition, worker or group"}},
)
async def history(
    request: Request,
    topic: Annotated[str | None, _NAME] = None,
    partition: Annotated[int | None, Query(ge=0, description="A partition of `topic`.")] = None,
    worker: Annotated[str | None, Query(max_length=129, description="A worker, a sinker or an engine.")] = None,
    group: Annotated[str | None, _NAME] = None,
    cluster: Annotated[str | None, Query(max_length=300, description="The cluster of `group`.")] = None,
    seconds: Annotated[float, Query(ge=15, le=KEPT_SECONDS, description="The length of the period.")] = 900.0,
    until: Annotated[
        float | None, Query(ge=0, le=1e11, description="The end of the period, in Unix seconds; default: now.")
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Returns the history of the fleet, or of one topic, partition, worker or group. Only the 20 groups with the most
    lag have a history. Each series has a minimum and a maximum per step. A step is 5 s if the period began at most 15
    minutes ago, 30 s if it began at most two hours ago, and otherwise 5 minutes."""
    api = api_of(request)
    snapshot = api.latest()
    if same := api.unchanged(snapshot, if_none_match):
        return same
    end = snapshot.taken_at_unix if until is None else until
    worker = None if worker is None else api.own_name(worker)
    subject = _subject(topic, partition, worker) if group is None else ("group", (cluster or snapshot.cluster, group))
    window = api.source.history.read(subject, end - seconds, end)
    if window is None:
        raise HTTPException(
            404, _NO_GROUP if group is not None else "there is no such topic, partition or worker in the last snapshot"
        )
    marks = [] if group is not None else api.source.feed.marks(end - seconds, math.inf if until is None else end)
    bounds = {"since": end - seconds, "until": end}
    named = [{"worker": None, **encoded(each)} for each in marks]
    series = {
        name: {"least": _listed(least), "most": _listed(window.most[name])} for name, least in window.least.items()
    }
    known = {"began_at": window.began_at, "first_at": window.first_at, "step_seconds": window.step_seconds}
    return api.answer(snapshot, {**bounds, **known, "series": series, "marks": named})


def _subject(topic: str | None, partition: int | None, worker: str | None) -> Subject:
    if worker is not None:
        return "worker", worker if topic is None and partition is None else None
    if partition is not None:
        return "partition", (topic, partition)
    return FLEET if topic is None else ("topic", topic)


def _listed(values: Reals) -> list[float | None]:
    return [None if value != value else value for value in values.round(3).tolist()]
