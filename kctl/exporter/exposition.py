"""A cache of the pages of `/metrics`: of each snapshot and format rendered and compressed once, however often asked."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry

from kctl.exporter.page import Format, Page, PageRenderer, accepted
from kctl.exporter.page_content import Exposed

__all__ = ["Exposition"]

_READY_COLLECTIONS = 120
"""Collections after which a page that nobody has asked for is no longer made ready."""


@dataclass(slots=True)
class _Pages:
    """The pages of one snapshot, as far as they were asked for."""

    snapshot: Exposed | None
    bodies: dict[Format, bytes] = field(default_factory=dict)


class Exposition:
    """A cache of pages; `latest` gives the last snapshot, None before the first. A scrape asks nobody else and may run
    on any thread.

    With `beside`, a prometheus_client registry of the caller's, its samples follow ours on the same page: its names
    must be others than ours.
    """

    def __init__(
        self,
        latest: Callable[[], Exposed | None],
        *,
        beside: CollectorRegistry | None = None,
    ) -> None:
        self._latest = latest
        self._is_cached = beside is None
        """Whether pages are kept: what others count changes between two snapshots."""
        self._renderer = PageRenderer(beside)
        self._lock = threading.Lock()
        self._asked: dict[Format, int] = {}
        self._pages = _Pages(None)
        self._ready = _Pages(None)
        """The pages of a snapshot that is not the last one yet, or has just become it."""

    def render(self, accept: str = "", accept_encoding: str = "") -> Page:
        """Returns the page of the last snapshot, in a format that the scraper accepts."""
        page_format = accepted(accept, accept_encoding)
        self._asked[page_format] = _READY_COLLECTIONS
        with self._lock:
            snapshot = self._latest()
            if self._is_cached and snapshot is self._ready.snapshot:
                self._pages = self._ready
            elif not self._is_cached or snapshot is not self._pages.snapshot:
                self._pages = _Pages(snapshot)
            return page_format.page(self._made(self._pages, page_format))

    def ready(self, accept: str = "", accept_encoding: str = "") -> Page | None:
        """Returns the page as `render` does, if it need not be made first; never waits."""
        page_format, snapshot = accepted(accept, accept_encoding), self._latest()
        for pages in (self._ready, self._pages):
            body = pages.bodies.get(page_format)
            if pages.snapshot is snapshot and body is not None and self._is_cached:
                self._asked[page_format] = _READY_COLLECTIONS
                return page_format.page(body)
        return None

    def prepare(self, snapshot: Exposed) -> None:
        """Makes the pages ready that were asked for of late, before `snapshot` becomes the last one: no scrape waits
        for that. On any thread."""
        ready = _Pages(snapshot)
        for page_format in list(self._asked):
            self._asked[page_format] -= 1
            if self._asked[page_format] <= 0:
                self._asked.pop(page_format, None)
            elif self._is_cached:
                with self._lock:
                    self._made(ready, page_format)
        with self._lock:
            if self._ready.snapshot is self._latest():
                self._pages = self._ready
            self._ready = ready

    def _made(self, pages: _Pages, page_format: Format) -> bytes:
        bodies = pages.bodies
        if page_format not in bodies:
            bodies[page_format] = self._renderer.body(pages.snapshot, page_format)
        return bodies[page_format]
