"""`/`, its assets and `/docs`: pages whose policy lets nothing run that is not served from here."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Mapping
from functools import cache
from html import escape
from importlib import resources
from typing import Any, NamedTuple

from fastapi import HTTPException, Request, Response
from fastapi.responses import HTMLResponse

_TYPES = {".js": "text/javascript", "css": "text/css"}
"""By the last three characters of a name; other files are not served on their own."""

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
"""


_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


async def home(request: Request) -> Response:
    """`app.state.serves` returns the parts of the page to show: `fleet`, `groups`, `hosts`."""
    whole = _files()["index.html"].body.decode().replace("{assets}", f"/assets/{_digest()}")
    policy = _POLICY.format(scripts="'self'", styles="'self'")
    page = whole.replace("{serves}", request.app.state.serves())
    return HTMLResponse(page, headers={"content-security-policy": policy, "cache-control": "no-cache"})


async def asset(request: Request, digest: str, name: str) -> Response:
    """A script or style. Its address changes with its content, so it can be cached for ever."""
    found = _files().get(name)
    if found is None or digest != _digest() or name[-3:] not in _TYPES:
        raise HTTPException(404, "there is no such file of the page")
    is_gzipped = "gzip" in request.headers.get("accept-encoding", "")
    headers = {"cache-control": "private, max-age=31536000, immutable", "vary": "accept-encoding"}
    if is_gzipped:
        headers["content-encoding"] = "gzip"
    return Response(found.gzipped if is_gzipped else found.body, media_type=_TYPES[name[-3:]], headers=headers)


async def docs(request: Request) -> Response:
    page = _reference(request.app.openapi())
    return HTMLResponse(page, headers={"content-security-policy": _policy(page), "cache-control": "no-cache"})


class _File(NamedTuple):
    body: bytes
    gzipped: bytes


@cache
def _files() -> Mapping[str, _File]:
    folder = resources.files("kctl.http").joinpath("page")
    vendor = folder.joinpath("vendor")
    named = {
        **{each.name: each for each in folder.iterdir()},
        **{f"vendor/{each.name}": each for each in vendor.iterdir()},
    }
    bodies = {
        name: each.read_bytes() for name, each in sorted(named.items()) if name[-3:] in _TYPES or name == "index.html"
    }
    return {name: _File(body, gzip.compress(body, mtime=0)) for name, body in bodies.items()}


@cache
def _digest() -> str:
    whole = b"\0".join(part for name, file in _files().items() for part in (name.encode(), file.body))
    return hashlib.sha256(whole).hexdigest()[:16]


@cache
def _policy(html: str) -> str:
    """Allows the page's own scripts and styles by hash."""
    scripts, styles = (
        " ".join(f"'sha256-{_sha256(text)}'" for text in re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL))
        for tag in ("script", "style")
    )
    none = "'none'"
    return _POLICY.format(scripts=scripts or none, styles=styles or none)


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _reference(openapi: Mapping[str, Any]) -> str:
    title = f"{openapi['info']['title']} {openapi['info']['version']}"
    operations = ((path, *each) for path, methods in openapi["paths"].items() for each in methods.items())
    body = "".join(_operation(path, method.upper(), described) for path, method, described in operations)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
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
