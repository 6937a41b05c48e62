"""`/api/v1/status`"""

from __future__ import annotations

from fastapi import Request, Response

from kctl.http.api import answers
from kctl.http.api.api import api_of
from kctl.http.api.listing import IfNoneMatch, router


@router.get("/status", summary="The fleet at a glance, with the verdict on it")
async def status(request: Request, if_none_match: IfNoneMatch = None) -> Response:
    api = api_of(request)
    snapshot, source = api.latest(), api.source
    body = answers.status_of(snapshot, source.verdicts, source.feed.last_number)
    return api.unchanged(snapshot, if_none_match) or api.answer(snapshot, body)
