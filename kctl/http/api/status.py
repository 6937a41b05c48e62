"""`/api/v1/status`"""

from __future__ import annotations

from fastapi import Request, Response

from kctl.http.api import answers
from kctl.http.api.api import api_of
from kctl.http.api.parameters import IfNoneMatch
from kctl.http.api.router import router
from kctl.master.readiness import not_ready

__all__ = ["status"]


@router.get("/status", summary="The fleet at a glance, and whether it is ready")
async def status(request: Request, if_none_match: IfNoneMatch = None) -> Response:
    api = api_of(request)
    snapshot, source = api.latest(), api.source
    reasons = not_ready(snapshot, source.clock(), source.unix_clock(), source.max_age_seconds)
    body = answers.status_of(snapshot, reasons, source.feed.last_number)
    return api.unchanged(snapshot, if_none_match) or api.answer(snapshot, body)
