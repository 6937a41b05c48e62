"""`/docs`: the OpenAPI description as a page to read, without scripts. Programs take `/openapi.json`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from kctl.http.page import Page

__all__ = ["reference_page"]

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
code { font-family: ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884; vertical-align: top; }
"""


def reference_page(openapi: Mapping[str, Any]) -> Page:
    """Every path with its parameters."""
    title = f"{openapi['info']['title']} {openapi['info']['version']}"
    body = "".join(_operation(path, method, described) for path, method, described in _operations(openapi))
    return Page.of(
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
