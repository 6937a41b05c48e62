"""The page of `/metrics`: the last snapshot, once rendered and once compressed, whoever asks and how often."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

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

_Kind = tuple[bool, bool]
"""Whether OpenMetrics is wanted, and whether gzip."""


@dataclass(slots=True)
class _Pages:
    """The pages of one snapshot, as far as they were asked for."""

    snapshot: FleetSnapshot | None
    bodies: dict[_Kind, bytes] = field(default_factory=dict)


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
        self._asked: dict[_Kind, int] = {}
        self._pages = _Pages(None)
        self._ready = _Pages(None)
        """Those of a snapshot that is not the last one yet, or has just become it."""

    def render(self, accept: str = "", accept_encoding: str = "") -> Page:
        """OpenMetrics if the scraper's Accept header wants it, else the text format; gzipped if it takes that."""
        kind = _kind(accept, accept_encoding)
        self._asked[kind] = _READY_COLLECTIONS
        with self._lock:
            snapshot = self._latest()
            if self._beside is None and snapshot is self._ready.snapshot:
                self._pages = self._ready
            elif self._beside is not None or snapshot is not self._pages.snapshot:
                self._pages = _Pages(snapshot)
            return _page(kind, self._made(self._pages, kind))

    def ready(self, accept: str = "", accept_encoding: str = "") -> Page | None:
        """The same if it need not be made first; never waits."""
        kind, snapshot = _kind(accept, accept_encoding), self._latest()
        for pages in (self._ready, self._pages):
            body = pages.bodies.get(kind)
            if pages.snapshot is snapshot and body is not None and self._beside is None:
                self._asked[kind] = _READY_COLLECTIONS
                return _page(kind, body)
        return None

    def prepare(self, snapshot: FleetSnapshot) -> None:
        """Makes the pages ready that were asked for of late, before `snapshot` becomes the last one: no scrape waits
        for that. On any thread."""
        ready = _Pages(snapshot)
        for kind in list(self._asked):
            self._asked[kind] -= 1
            if self._asked[kind] <= 0:
                self._asked.pop(kind, None)
            elif self._beside is None:
                with self._lock:
                    self._made(ready, kind)
        with self._lock:
            if self._ready.snapshot is self._latest():
                self._pages = self._ready
            self._ready = ready

    def _made(self, pages: _Pages, kind: _Kind) -> bytes:
        bodies = pages.bodies
        if kind not in bodies:
            is_openmetrics, is_gzipped = kind
            body = bodies.get((is_openmetrics, False)) or self._body(pages.snapshot, is_openmetrics)
            bodies[kind] = gzip.compress(body, _GZIP_LEVEL, mtime=0) if is_gzipped else body
        return bodies[kind]

    def _body(self, snapshot: FleetSnapshot | None, is_openmetrics: bool) -> bytes:
        ours = b"" if snapshot is None else self._renderer.render(snapshot, is_openmetrics=is_openmetrics)
        theirs = b""
        if self._beside is not None:
            generate = generate_openmetrics if is_openmetrics else generate_latest
            theirs = generate(self._beside).removesuffix(_EOF)
        return ours + theirs + (_EOF if is_openmetrics else b"")


def _kind(accept: str, accept_encoding: str) -> _Kind:
    return "application/openmetrics-text" in accept, _takes_gzip(accept_encoding)


def _page(kind: _Kind, body: bytes) -> Page:
    is_openmetrics, is_gzipped = kind
    return body, OPENMETRICS if is_openmetrics else TEXT, is_gzipped


def _takes_gzip(accept_encoding: str) -> bool:
    for item in accept_encoding.split(","):
        coding, _, quality = item.partition(";")
        if coding.strip().lower() in ("gzip", "*"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
