"""`/` and `/docs`: pages for people, with everything in them, and a policy that lets run what is in them alone."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from importlib import resources
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
"""


async def home() -> Response:
    return _page(_fleet_page())


async def docs(request: Request) -> Response:
    return _page(_reference(request.app.openapi()))


@cache
def _fleet_page() -> str:
    return resources.files("kctl.http").joinpath("page.html").read_text(encoding="utf-8")


def _page(html: str) -> Response:
    return HTMLResponse(html, headers={"content-security-policy": _policy(html), "cache-control": "no-cache"})


@cache
def _policy(html: str) -> str:
    """The page's own scripts and styles are allowed by their hashes."""
    scripts, styles = (
        " ".join(f"'sha256-{_sha256(text)}'" for text in re.findall(f"<{tag}>(.*?)</{tag}>", html, re.DOTALL))
        for tag in ("script", "style")
    )
    none = "'none'"
    return (
        f"default-src 'none'; script-src {scripts or none}; style-src {styles or none}; img-src data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _reference(openapi: Mapping[str, Any]) -> str:
    """Every path with its parameters."""
    title = f"{openapi['info']['title']} {openapi['info']['version']}"
    body = "".join(_operation(path, method, described) for path, method, described in _operations(openapi))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f"<p>{escape(openapi['info']['summary'])} Every error is "
        '<code>{"error":{"code","message","retriable"}}</code>. Programs read <a href="/openapi.json">openapi.json</a>.'
        f"</p>{body}</body></html>\n"
    )


def _operations(openapi: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, methods in openapi["paths"].items():
        for method, described in methods.items():
            yield path, method.upper(), described


def _operation(path: str, method: str, described: Mapping[str, Any]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(each['name'])}</code></td><td>{escape(each['in'])}</td>"
        f"<td>{escape(each.get('description', ''))}</td></tr>"
        for each in described.get("parameters", ())
    )
    table = f"<table><tr><th>parameter</th><th>in</th><th></th></tr>{rows}</table>" if rows else ""
    text = escape(described.get("description", ""))
    return f"<h2><code>{method} {escape(path)}</code></h2><p>{escape(described.get('summary', ''))}. {text}</p>{table}"
