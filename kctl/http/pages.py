"""`/` and `/docs`: what is for people."""

from __future__ import annotations

from functools import cache

from fastapi import Request, Response

from kctl.http.page import Page
from kctl.http.reference import reference_page

__all__ = ["docs", "home"]


async def home() -> Response:
    return _fleet_page().response()


async def docs(request: Request) -> Response:
    return reference_page(request.app.openapi()).response()


@cache
def _fleet_page() -> Page:
    return Page.load("page.html")
