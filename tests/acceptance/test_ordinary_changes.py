"""During an ordinary start, restart, reload or scale no view shows `failing`, and no alert pages."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.acceptance.changes import CHANGES, start
from tests.acceptance.outage_bench import Bench, bench, benches, chromium, events, nothing_left_behind
from tests.expressions import paging
from tests.verdict_views import watched

__all__ = ["bench", "benches", "chromium", "nothing_left_behind"]

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(600)]


@pytest.mark.shows("an ordinary start, restart, reload or scale shows no `failing`; no paging alert is pending")
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
def test_an_ordinary_change_is_never_failing(bench: Bench, change: Callable[[Bench], None]) -> None:
    bench.begin()
    last = max((number for number, _ in events(bench)), default=0) if change is not start else 0
    load = bench.fleet.load(rate=50)
    if change is start:
        bench.close()  # Prometheus cannot tell a stopped target from a dead one

    alerts = watched(lambda: bench.views.shown(), lambda: bench.views.pending(), lambda: change(bench), bench.open)

    bench.fleet.finish(load)
    assert alerts & paging() == set()
    assert "failing" not in "\n".join(text for _, text in events(bench, last))
    bench.is_well = True
