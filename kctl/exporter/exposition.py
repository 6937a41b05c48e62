"""The page of `/metrics`: the last snapshot, once rendered and once compressed, whoever asks and how often."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from kctl.exporter.metrics import ALIAS, METRICS
from kctl.exporter.text import OPENMETRICS, TEXT, TextRenderer
from kctl.master.snapshot import FleetSnapshot

__all__ = ["Exposition", "Page"]

_EOF = b"# EOF\n"
_GZIP_LEVEL = 1
"""12 ms for 100,000 samples; level 6 takes four times as long and saves little."""

_READY_COLLECTIONS = 120
"""A page that nobody has asked for during so many collections is no longer made ready."""

Page = tuple[bytes, str, bool]
"""Body, content type, whether the body is gzipped."""


class Exposition:
    """`latest` gives the last snapshot, None before the first. A scrape asks nobody else and may run on any thread.

    With `beside`, a prometheus_client registry of the caller's, its samples follow ours on the same page: its names
    must be others than ours. `has_alias` adds `kafka_consumergroup_lag`.
    """

    def __init__(
        self,
        latest: Callable[[], FleetSnapshot | None],
        *,
        has_alias: bool = False,
        beside: CollectorRegistry | None = None,
    ) -> None:
        self._latest = latest
        self._beside = beside
        self._renderer = TextRenderer((*METRICS, ALIAS) if has_alias else METRICS)
        self._lock = threading.Lock()
        self._rendered: FleetSnapshot | None = None
        self._asked: dict[tuple[bool, bool], int] = {}
        self._pages: dict[tuple[bool, bool], bytes] = {}

    def render(self, accept: str = "", accept_encoding: str = "") -> Page:
        """OpenMetrics if the scraper's Accept header wants it, else the text format; gzipped if it takes that."""
        is_openmetrics, is_gzipped = "application/openmetrics-text" in accept, _takes_gzip(accept_encoding)
        self._asked[is_openmetrics, is_gzipped] = _READY_COLLECTIONS
        return self._page(is_openmetrics, is_gzipped), OPENMETRICS if is_openmetrics else TEXT, is_gzipped

    def prepare(self) -> None:
        """Makes the pages ready that were asked for of late, so that the next scrape finds them; on any thread."""
        for key in list(self._asked):
            self._asked[key] -= 1
            if self._asked[key] <= 0:
                self._asked.pop(key, None)
            elif self._beside is None:
                self._page(*key)

    def _page(self, is_openmetrics: bool, is_gzipped: bool) -> bytes:
        with self._lock:
            snapshot = self._latest()
            if snapshot is not self._rendered or self._beside is not None:
                self._pages.clear()
                self._rendered = snapshot
            key = (is_openmetrics, is_gzipped)
            if key not in self._pages:
                body = self._pages.get((is_openmetrics, False)) or self._body(snapshot, is_openmetrics)
                self._pages[is_openmetrics, False] = body
                if is_gzipped:
                    self._pages[key] = gzip.compress(body, _GZIP_LEVEL, mtime=0)
            return self._pages[key]

    def _body(self, snapshot: FleetSnapshot | None, is_openmetrics: bool) -> bytes:
        ours = "" if snapshot is None else self._renderer.render(snapshot, is_openmetrics=is_openmetrics)
        theirs = b""
        if self._beside is not None:
            generate = generate_openmetrics if is_openmetrics else generate_latest
            theirs = generate(self._beside).removesuffix(_EOF)
        return ours.encode() + theirs + (_EOF if is_openmetrics else b"")


def _takes_gzip(accept_encoding: str) -> bool:
    for item in accept_encoding.split(","):
        coding, _, quality = item.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
