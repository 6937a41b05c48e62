"""If one of three hosts is paused, throttled, in a long batch or frozen, every host shows one verdict and reason."""

import time
from collections.abc import Iterator
from functools import partial

import pytest
from selenium import webdriver

from tests.acceptance.fleets import START_SECONDS
from tests.acceptance.host_bench import HOST_PROBLEMS, HOSTS, AllShown, HostProblem, HostsBench, of_all_hosts
from tests.acceptance.outage_bench import SECONDS, nothing_left_behind
from tests.conftest import eventually, on_this_machine
from tests.expressions import paging
from tests.verdict_views import watched

__all__ = ["nothing_left_behind"]

pytestmark = [pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def bench(chromium: webdriver.Chrome) -> Iterator[HostsBench]:
    yield from of_all_hosts("h", chromium)


@pytest.mark.shows("if one of three hosts is in trouble, all show one verdict; only its `/readyz` and alerts change")
@pytest.mark.shows("a long batch, a pause, a full storage or a frozen host is not `stalled` for other hosts")
@pytest.mark.parametrize("problem", HOST_PROBLEMS, ids=lambda each: each.outage.__name__)
def test_trouble_of_one_host_is_one_verdict_on_all_hosts(bench: HostsBench, problem: HostProblem) -> None:
    bench.begin()

    with problem.outage(bench):
        began = time.monotonic()
        shown_after = None
        shown: AllShown = {}
        while shown_after is None or time.monotonic() - began < problem.seconds or not problem.is_shown(shown):
            shown = bench.shown()
            assert problem.blamed(shown) == []
            if problem.is_shown(shown):
                shown_after = shown_after or time.monotonic() - began
            else:
                assert time.monotonic() - began < on_this_machine(problem.seconds), printed(shown)
        print(f"{problem.outage.__name__}: shown on all hosts after {shown_after:.1f} s")
        assert shown_after < on_this_machine(SECONDS)
        eventually(lambda: problem.are_pending(bench.pending()), what="these alerts are pending, and no others")
    ended = time.monotonic()

    if problem.answering != HOSTS:
        eventually(bench.is_whole, START_SECONDS, "each host has partitions")
    bench.await_well()
    print(f"{problem.outage.__name__}: well on all hosts {time.monotonic() - ended:.1f} s after its end")


@pytest.mark.shows("a rolling upgrade of three hosts shows no `failing`, and no paging alert is pending")
def test_a_rolling_upgrade_is_never_failing(bench: HostsBench) -> None:
    bench.begin()
    for fleet in bench.fleets.values():
        fleet.kctl("storage", "clear", "--yes")
    load = bench.fleets["a"].load(rate=50)

    alerts = [watched(bench.flat, bench.pending, partial(bench.upgrade, name), bench.open) for name in HOSTS]

    bench.fleets["a"].finish(load)
    # Prometheus cannot tell a stopped target from a dead one; the alert fires after two minutes.
    assert set().union(*alerts) & paging() <= {"KctlMasterDown"}


def printed(shown: AllShown) -> str:
    return "\n".join(f"{host}'s {view}: {each}" for host, views in shown.items() for view, each in views.items())
