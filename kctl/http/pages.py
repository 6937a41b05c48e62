"""`/`, its assets, `/docs`, and answers for probes and scrapers. The content security policy of `/` and `/docs` permits
scripts only from this server."""

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources
from typing import Any, NamedTuple

from fastapi import HTTPException, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse

from kctl.http.errors import error_response
from kctl.http.guard import OTHER_KEY
from kctl_agent.errors import NotReady

_TYPES = {".js": "text/javascript", "css": "text/css"}
"""Content types by the last three characters of a name. Other files are not served on their own."""

_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cache-control": "no-cache",
}


async def home(request: Request) -> Response:
    """Returns the page, which shows only the parts that this server supports."""
    whole = _files()["index.html"].body.decode().replace("{assets}", f"/assets/{_digest()}")
    page = whole.replace("{serves}", request.app.state.serves())
    return HTMLResponse(page, headers=_HEADERS)


async def asset(request: Request, digest: str, name: str) -> Response:
    """Returns a script or style. Browsers may cache the file for ever, because its URL changes with its content."""
    found = _files().get(name)
    if found is None or digest != _digest() or name[-3:] not in _TYPES:
        raise HTTPException(404, "the page has no such file")
    is_gzipped = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"cache-control": "private, max-age=31536000, immutable", "vary": "accept-encoding"}
    if is_gzipped:
        headers["content-encoding"] = "gzip"
    return Response(found.gzipped if is_gzipped else found.body, media_type=_TYPES[name[-3:]], headers=headers)


async def docs(request: Request) -> Response:
    return HTMLResponse(_reference(request.app.openapi()), headers=_HEADERS)


class _File(NamedTuple):
    body: bytes
    gzipped: bytes


@cache
def _files() -> Mapping[str, _File]:
    folder = resources.files("kctl.http").joinpath("page")
    named = {each.name: each for each in folder.iterdir()}
    named |= {f"vendor/{each.name}": each for each in folder.joinpath("vendor").iterdir()}
    bodies = {
        name: each.read_bytes() for name, each in sorted(named.items()) if name[-3:] in _TYPES or name == "index.html"
    }
    return {name: _File(body, gzip.compress(body, mtime=0)) for name, body in bodies.items()}


@cache
def _digest() -> str:
    whole = b"\0".join(part for name, file in _files().items() for part in (name.encode(), file.body))
    return hashlib.sha256(whole).hexdigest()[:16]


def _reference(openapi: Mapping[str, Any]) -> str:
    title = f"{openapi['info']['title']} {openapi['info']['version']}"
    operations = ((path, *each) for path, methods in openapi["paths"].items() for each in methods.items())
    body = "".join(_operation(path, method.upper(), described) for path, method, described in operations)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<link rel="stylesheet" href="/assets/{_digest()}/docs.css"></head><body><h1>{escape(title)}</h1>'
        f"<p>{escape(openapi['info']['summary'])} Every error is "
        '<code>{"error":{"code","message","retriable"}}</code>. Programs read <a href="/openapi.json">openapi.json</a>.'
        f"</p>{body}</body></html>\n"
    )


def _operation(path: str, method: str, described: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for each in described.get("parameters", ())
    )
    table = f"<table><tr><th>parameter</th><th>in</th><th></th></tr>{rows}</table>" if rows else ""
    text = escape(described.get("description", ""))
    return f"<h2><code>{method} {escape(path)}</code></h2><p>{escape(described.get('summary', ''))}. {text}</p>{table}"


async def healthz() -> dict[str, str]:
    return {"status": "ok"}


async def readyz(request: Request) -> Response:
    """Answers 200 if ready, otherwise 503 with the reason."""
    is_other = OTHER_KEY in request.scope  # the reason may quote errors
    try:
        body = request.app.state.source.ready()
    except NotReady as error:
        return error_response(NotReady("the reason is for the fleet's user, root, and tokens") if is_other else error)
    return JSONResponse({"status": body["status"]} if is_other else body)


async def metrics(request: Request) -> Response:
    wants = request.headers.get("accept", ""), request.headers.get("accept-encoding", "")
    body, content_type, is_gzipped = await request.app.state.source.metrics(*wants)
    headers = {"vary": "accept, accept-encoding"} | ({"content-encoding": "gzip"} if is_gzipped else {})
    return Response(body, media_type=content_type, headers=headers)
