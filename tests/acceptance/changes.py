"""What people do to a fleet in the ordinary course of things; nothing of it is ever `failing` (docs/problems.md)."""

from __future__ import annotations

from collections.abc import Callable

from tests.acceptance.fleets import START_SECONDS
from tests.acceptance.outage_bench import Bench
from tests.conftest import eventually


def start(bench: Bench) -> None:
    """The fleet is started while messages are pending."""
    assert bench.fleet.stop() == 0
    bench.fleet.send(2000)
    bench.fleet.start()
    eventually(bench.fleet.url, START_SECONDS, "the master answers")


def restart(bench: Bench) -> None:
    """All workers and the sinker are restarted."""
    bench.fleet.kctl("restart", "worker-0", "worker-1", "sinker-0", "--wait")


def restart_of_the_engine(bench: Bench) -> None:
    """The engine is restarted."""
    bench.fleet.kctl("restart", "engine", "--wait")


def reload(bench: Bench) -> None:
    """A changed configuration is reloaded, and all processes restart with it, one after another."""
    text = bench.fleet.config.read_text()
    bench.fleet.config.write_text(text.replace("[workers]\n", "[workers]\nmax_records_per_batch = 5000\n", 1))
    bench.fleet.kctl("reload")
    bench.fleet.kctl("restart", "--all", "--rolling", "--yes", "--wait")


def scale(bench: Bench) -> None:
    """The fleet is scaled up by a worker and a sinker, then down."""
    bench.fleet.kctl("scale", "workers=3", "sinkers=2", "--wait")
    bench.fleet.kctl("scale", "workers=1", "sinkers=1", "--wait")
    bench.fleet.kctl("scale", "workers=2", "--wait")


CHANGES: tuple[Callable[[Bench], None], ...] = (start, restart, restart_of_the_engine, reload, scale)
