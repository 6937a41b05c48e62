"""A broker, workers and a master that hang or die: every view shows the one verdict, and its end. With stand-in
workers; tests/acceptance/test_outages.py has the whole table, with all parts real."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.browser import browser, require_browser
from tests.processes import stopped
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker
from tests.verdict_views import Views, agree, are_silent

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.timeout(300)]
"""80 s: more than `make test` has left."""

SECONDS = 30.0
"""Of a machine with other tests on it; how soon it is, the whole table measures."""


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """The browser starts and ends processes as it likes; none outlives it."""
    before = set(psutil.Process().children(recursive=True))
    yield
    _, alive = psutil.wait_procs(set(psutil.Process().children(recursive=True)) - before, timeout=60)
    assert alive == []


@pytest.fixture
def own_broker(short_dir: Path) -> Iterator[KafkaBroker]:
    with KafkaBroker(short_dir / "broker") as running:
        topics.create_topic(running.bootstrap_servers, "orders", 3)
        yield running


@pytest.mark.shows("what hangs or is gone is one verdict with one reason in every view")
def test_what_hangs_or_is_gone_is_one_verdict_in_every_view(
    master: Callable[..., Any], own_broker: KafkaBroker
) -> None:
    require_browser()
    fleet = master(
        kafka={"bootstrap_servers": own_broker.bootstrap_servers},
        workers={"ping_timeout_seconds": 120.0},
        status={"window_seconds": 3600.0},  # stand-ins commit nothing
    )
    pids = [row["pid"] for row in fleet.status().values()]
    with browser() as chromium:
        views = Views(fleet.config, fleet.about["http_url"], chromium, {})
        chromium.get(views.url)

        def shows(level: str, what: str) -> None:
            views.await_shown(lambda shown: agree(shown, level, what), SECONDS, f"{level}: {what}")

        shows("ok", "all runs")
        assert own_broker.pid is not None
        with stopped([own_broker.pid]):
            shows("failing", "no Kafka broker has answered$")
        shows("ok", "all runs")
        with stopped(pids[1:]):
            shows("degraded", "1 of 2 workers has not worked")
            with stopped(pids[:1]):
                shows("failing", "no worker has worked")
        shows("ok", "all runs")
        with stopped([fleet.process.pid]):
            views.await_shown(lambda shown: are_silent(shown, 1), SECONDS, "the master hangs")
        shows("ok", "all runs")
        os.kill(own_broker.pid, signal.SIGKILL)
        shows("failing", "no Kafka broker has answered$")
        own_broker.kill()  # waits for its end
