"""The pages of `/metrics`: each snapshot is rendered and compressed once per format."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from kctl.exporter.metrics import METRICS
from kctl.exporter.text import OPENMETRICS, TEXT, Exposed, TextBlock, TextRenderer, gzipped, plain

_EOF = b"# EOF\n"
Page: TypeAlias = tuple[bytes, str, bool]
"""Body, content type, and whether the body is gzipped."""
_READY_COLLECTIONS = 120
"""After this many collections without a request, kctl stops preparing a page."""


class Format(NamedTuple):
    is_openmetrics: bool
    is_gzipped: bool

    def page(self, body: bytes) -> Page:
        return body, OPENMETRICS if self.is_openmetrics else TEXT, self.is_gzipped


def accepted(accept: str, accept_encoding: str) -> Format:
    """OpenMetrics if the Accept header names it; gzipped if accepted."""
    return Format("application/openmetrics-text" in accept, _takes_gzip(accept_encoding))


def _takes_gzip(accept_encoding: str) -> bool:
    for item in accept_encoding.split(","):
        coding, _, quality = item.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


_Pages: TypeAlias = tuple[Exposed | None, dict[Format, bytes]]
"""A snapshot, and its pages that were requested."""


class Exposition:
    """A cache of pages. A scrape asks no process and may run on any thread. `beside`: a prometheus_client registry
    whose samples follow on the page."""

    def __init__(
        self,
        latest: Callable[[], Exposed | None],
        *,
        beside: CollectorRegistry | None = None,
    ) -> None:
        self._latest = latest
        self._is_cached = beside is None
        """Whether pages are kept: a registry changes between snapshots."""
        self._text = TextRenderer(METRICS)
        self._beside = beside
        self._lock = threading.Lock()
        self._asked: dict[Format, int] = {}
        self._pages: _Pages = None, {}
        self._ready: _Pages = None, {}
        """The pages of a snapshot that is about to become the last, or just has."""

    def render(self, accept: str = "", accept_encoding: str = "") -> Page:
        """The last snapshot in a format that the scraper accepts."""
        page_format = accepted(accept, accept_encoding)
        self._asked[page_format] = _READY_COLLECTIONS
        with self._lock:
            snapshot = self._latest()
            if self._is_cached and snapshot is self._ready[0]:
                self._pages = self._ready
            elif not self._is_cached or snapshot is not self._pages[0]:
                self._pages = snapshot, {}
            return page_format.page(self._made(self._pages, page_format))

    def ready(self, accept: str = "", accept_encoding: str = "") -> Page | None:
        """Like `render`, but returns None instead of waiting."""
        page_format, snapshot = accepted(accept, accept_encoding), self._latest()
        for shown, bodies in (self._ready, self._pages):
            body = bodies.get(page_format)
            if shown is snapshot and body is not None and self._is_cached:
                self._asked[page_format] = _READY_COLLECTIONS
                return page_format.page(body)
        return None

    def prepare(self, snapshot: Exposed) -> None:
        """Renders recently requested pages before `snapshot` becomes the last one, so that no scrape waits. For any
        thread."""
        ready: _Pages = snapshot, {}
        for page_format in list(self._asked):
            self._asked[page_format] -= 1
            if self._asked[page_format] <= 0:
                self._asked.pop(page_format, None)
            elif self._is_cached:
                with self._lock:
                    self._made(ready, page_format)
        with self._lock:
            if self._ready[0] is self._latest():
                self._pages = self._ready
            self._ready = ready

    def _made(self, pages: _Pages, page_format: Format) -> bytes:
        snapshot, bodies = pages
        if page_format not in bodies:
            bodies[page_format] = self._body(snapshot, page_format)
        return bodies[page_format]

    def _body(self, snapshot: Exposed | None, page_format: Format) -> bytes:
        is_openmetrics = page_format.is_openmetrics
        page = [] if snapshot is None else self._text.render(snapshot, is_openmetrics=is_openmetrics)
        end = _EOF if is_openmetrics else b""
        if self._beside is not None:
            generate = generate_openmetrics if is_openmetrics else generate_latest
            end = generate(self._beside).removesuffix(_EOF) + end
        page.append(TextBlock(lambda: end))
        return gzipped(page) if page_format.is_gzipped else plain(page)
