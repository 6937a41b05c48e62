"""Ten seconds after a problem of any part of a fleet begins or ends, all views show one verdict and reason."""

import re
import time
from collections.abc import Callable

import pytest

from tests.acceptance.fleets import START_SECONDS
from tests.acceptance.outage_bench import (
    READ_TOKEN,
    SECONDS,
    WORKERS,
    Bench,
    bench,
    benches,
    events,
    nothing_left_behind,
)
from tests.acceptance.outages import CHANGES, PROBLEMS, Problem, restart, restart_of_the_engine, start
from tests.conftest import eventually
from tests.expressions import paging
from tests.processes import stopped
from tests.verdict_views import Shown, agree, are_silent, pattern, watched

__all__ = ["bench", "benches", "nothing_left_behind"]

pytestmark = pytest.mark.alone


WATCHED_SECONDS = 5.0


@pytest.mark.parametrize(
    ("bench", "problem"),
    [
        pytest.param(each.bench, each, id=each.outage.__name__, marks=[] if each.is_quick else [pytest.mark.long])
        for each in PROBLEMS
    ],
    indirect=["bench"],
)
def test_each_problem_is_one_verdict_in_every_view_and_its_end_too(bench: Bench, problem: Problem) -> None:
    bench.begin()
    name, level = problem.outage.__name__, problem.level
    whats = [what.replace("TOPIC", bench.fleet.topic) for what in problem.whats]

    last = max((number for number, _ in events(bench)), default=0)
    with problem.outage(bench):
        begun = time.monotonic()
        bench.await_shown(
            lambda shown: agree(shown, level, *whats) and problem.why in shown["api"].reason,
            SECONDS,
            f"{level}: {whats} {problem.why}",
        )
        print(f"{name}: shown after {(agreed := time.monotonic()) - begun:.1f} s")
        while time.monotonic() - agreed < WATCHED_SECONDS:
            wrong = {
                view: each for view, each in bench.views.shown().items() if (each.level == "ok") is not (level == "ok")
            }
            assert not wrong, f"{time.monotonic() - begun:.1f} s after its begin, for {level}: {wrong}"
    ended = time.monotonic()
    bench.await_well()
    print(f"{name}: well {time.monotonic() - ended:.1f} s after its end")

    if level != "ok":
        texts = [text for _, text in events(bench, last)]
        shown = re.compile(f"(->|still) {level}: .*({pattern(*whats).pattern})")
        assert any(shown.search(text) for text in texts), texts
        assert any("-> ok: " in text for text in texts), texts


@pytest.mark.long
def test_a_master_that_is_frozen_or_gone_is_no_fleet_that_is_well(bench: Bench) -> None:
    bench.begin()
    pid = bench.fleet.pid
    assert pid is not None

    with stopped([pid]):
        bench.await_shown(lambda shown: are_silent(shown, 1), SECONDS, "the frozen master is shown")
    bench.await_well()
    bench.fleet.kill()
    bench.await_shown(lambda shown: are_silent(shown, 5), SECONDS, "the killed master is shown")
    bench.fleet.start()
    seen: list[dict[str, Shown]] = []

    eventually(lambda: bench.views.readyz().code, START_SECONDS, "the next master answers")
    bench.open()

    def is_well(shown: dict[str, Shown]) -> bool:
        seen.append(shown)
        return all(each.level == "ok" for each in shown.values())

    bench.await_shown(is_well, START_SECONDS, "the next master has all well")
    assert bench.fleet.is_running(*WORKERS)
    levels = {each.level for shown in seen for name, each in shown.items() if name not in ("alerts", "top")}
    assert "failing" not in levels, f"its workers have just begun: {seen}"


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.shows("an ordinary start, restart, reload or scale shows no `failing`; no paging alert is pending")
@pytest.mark.shows("a restart of all workers, or of the engine, is reported as `degraded`, never `failing`")
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
    texts = "\n".join(text for _, text in events(bench, last))
    assert "failing" not in texts
    if change in (restart, restart_of_the_engine):
        assert f"{'engine' if change is restart_of_the_engine else 'worker-0'} is restarting on request" in texts
    bench.is_well = True


@pytest.mark.long
def test_a_page_whose_token_is_no_longer_right_shows_nothing_as_well(bench: Bench) -> None:
    bench.begin()
    token = bench.token
    token.write_text("0123456789abcdef-other\n")
    try:
        bench.fleet.kctl("reload")
        bench.await_shown(
            lambda shown: (
                (shown["page"].level, shown["page"].what, shown["status"].level) == ("unknown", "no data", "ok")
            ),
            SECONDS,
            "the page has no data, and the command line needs no token",
        )
    finally:
        token.write_text(f"{READ_TOKEN}\n")
        bench.fleet.kctl("reload")
        bench.open()
    bench.await_well()
