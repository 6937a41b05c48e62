"""Renders a page of `/metrics`: the snapshot in the format that a scraper accepts, with what else is on the page."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from kctl.exporter.blocks import TextBlock, gzipped, plain
from kctl.exporter.metrics import METRICS
from kctl.exporter.page_content import Exposed
from kctl.exporter.text import OPENMETRICS, TEXT, TextRenderer

__all__ = ["Format", "Page", "PageRenderer", "accepted"]

_EOF = b"# EOF\n"

Page: TypeAlias = tuple[bytes, str, bool]
"""A page: body, content type, whether the body is gzipped."""


class Format(NamedTuple):
    is_openmetrics: bool
    is_gzipped: bool

    def page(self, body: bytes) -> Page:
        return body, OPENMETRICS if self.is_openmetrics else TEXT, self.is_gzipped


def accepted(accept: str, accept_encoding: str) -> Format:
    """Returns OpenMetrics if the scraper's Accept header wants it, else the text format; gzipped if it takes that."""
    return Format("application/openmetrics-text" in accept, _takes_gzip(accept_encoding))


def _takes_gzip(accept_encoding: str) -> bool:
    for item in accept_encoding.split(","):
        coding, _, quality = item.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class PageRenderer:
    """Renders pages and keeps what they have in common. Not thread-safe: one thread renders at a time."""

    def __init__(self, beside: CollectorRegistry | None) -> None:
        self._text = TextRenderer(METRICS)
        self._beside = beside

    def body(self, snapshot: Exposed | None, page_format: Format) -> bytes:
        """Returns the body of a page."""
        is_openmetrics = page_format.is_openmetrics
        page = [] if snapshot is None else self._text.render(snapshot, is_openmetrics=is_openmetrics)
        end = _EOF if is_openmetrics else b""
        if self._beside is not None:
            generate = generate_openmetrics if is_openmetrics else generate_latest
            end = generate(self._beside).removesuffix(_EOF) + end
        page.append(TextBlock(lambda: end))
        return gzipped(page) if page_format.is_gzipped else plain(page)
