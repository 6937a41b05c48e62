"""The pages of `/metrics`. Each snapshot is rendered and compressed at most once per format."""

import asyncio
import threading
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from kctl.exporter import of_groups, of_master, of_partitions, of_workers
from kctl.exporter.metric import Metric
from kctl.exporter.text import OPENMETRICS, TEXT, Exposed, TextBlock, TextRenderer, gzipped, plain

METRICS: tuple[Metric, ...] = (*of_partitions.METRICS, *of_groups.METRICS, *of_workers.METRICS, *of_master.METRICS)
"""All metrics. An unknown value has no sample, neither 0 nor NaN. Nothing is kept between snapshots, so an outdated
series disappears with the next snapshot. docs/metrics.md is generated from this table."""
Page: TypeAlias = tuple[bytes, str, bool]  # body, content type, and whether the body is gzipped
_READY_COLLECTIONS = 120  # after this many collections without a request, kctl stops preparing a page


class Format(NamedTuple):
    is_openmetrics: bool
    is_gzipped: bool

    def page(self, body: bytes) -> Page:
        return body, OPENMETRICS if self.is_openmetrics else TEXT, self.is_gzipped


def accepted(accept: str, accept_encoding: str) -> Format:
    """Returns the format to send, from the headers of the scrape."""
    return Format("application/openmetrics-text" in accept, _takes_gzip(accept_encoding))


def _takes_gzip(accept_encoding: str) -> bool:
    for item in accept_encoding.split(","):
        coding, _, quality = item.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class Exposition:
    """A thread-safe cache of rendered pages."""

    def __init__(self, latest: Callable[[], Exposed | None]) -> None:
        self._latest = latest
        self._text = TextRenderer(METRICS)
        self._lock = threading.Lock()
        self._asked: dict[Format, int] = {}
        self._pages: tuple[tuple[Exposed | None, dict[Format, bytes]], ...] = ()
        """Pages of the last snapshot, and of the one that is about to replace it."""

    async def page(self, accept: str, accept_encoding: str) -> Page:
        """Returns the page of the last snapshot. If it is not rendered yet, a thread renders it."""
        made = self.ready(accept, accept_encoding)
        return await asyncio.to_thread(self.render, accept, accept_encoding) if made is None else made

    def render(self, accept: str = "", accept_encoding: str = "") -> Page:
        """Returns the page of the last snapshot in a format that the scraper accepts. Blocks while it renders."""
        page_format = accepted(accept, accept_encoding)
        self._asked[page_format] = _READY_COLLECTIONS
        with self._lock:
            return page_format.page(self._made(self._latest(), page_format))

    def ready(self, accept: str = "", accept_encoding: str = "") -> Page | None:
        """Returns the page if it is already rendered, otherwise None."""
        page_format = accepted(accept, accept_encoding)
        body = self._bodies(self._latest()).get(page_format)
        if body is None:
            return None
        self._asked[page_format] = _READY_COLLECTIONS
        return page_format.page(body)

    def prepare(self, snapshot: Exposed) -> None:
        """Renders `snapshot` in recently requested formats. Call it before publishing, so that no scrape waits."""
        for page_format in list(self._asked):
            self._asked[page_format] -= 1
            if self._asked[page_format] <= 0:
                self._asked.pop(page_format, None)
            else:
                with self._lock:
                    self._made(snapshot, page_format)
        if not self._asked:
            self._pages = ()

    def _bodies(self, snapshot: Exposed | None) -> dict[Format, bytes]:
        return next((bodies for shown, bodies in self._pages if shown is snapshot), {})

    def _made(self, snapshot: Exposed | None, page_format: Format) -> bytes:
        bodies = self._bodies(snapshot)
        if not bodies:
            self._pages = *self._pages[-1:], (snapshot, bodies)
        if page_format not in bodies:
            bodies[page_format] = self._body(snapshot, page_format)
        return bodies[page_format]

    def _body(self, snapshot: Exposed | None, page_format: Format) -> bytes:
        is_openmetrics = page_format.is_openmetrics
        page = [] if snapshot is None else self._text.render(snapshot, is_openmetrics=is_openmetrics)
        if is_openmetrics:
            page.append(TextBlock(lambda: b"# EOF\n"))
        return gzipped(page) if page_format.is_gzipped else plain(page)
