"""A master's sinkers are in every list, are restarted, and their leases do not wait."""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.storage.file import FileStorage
from tests.conformance.given import fill, is_empty
from tests.conftest import eventually
from tests.integration.conftest import Master
from tests.integration.sinker_handlers import ledger
from tests.integration.sinkers import place, sinkers, storage

__all__ = ["place", "storage"]


@pytest.mark.shows("sinkers are supervised like workers; a killed master costs no message")
def test_sinkers_are_in_every_list(place: Path, master: Callable[..., Master], storage: FileStorage) -> None:
    fill(storage, 100)
    one = master(sinkers=sinkers("counts"), workers={"count": 1})

    assert {name: row["kind"] for name, row in one.status().items()} == {
        "sinker-0": "sinker",
        "sinker-1": "sinker",
        "worker-0": "worker",
    }

    def handled() -> int:
        # A sinker answers before it has opened its storage, and publishes its stats only then.
        rows = one.ask("workers").result["rows"]
        return sum(row.get("sinker", {}).get("handled", 0) for row in rows if row["kind"] == "sinker")

    eventually(lambda: handled() == 100)
    for question in ("kafka_lag", "offset_checker", "member_leader", "metadata_brokers", "metadata_topics"):
        assert one.ask(question).asked == ("worker-0",)
    for question in ("ping", "describe", "workers", "block_size"):
        reply = eventually(lambda question=question: (reply := one.ask(question)).complete and reply)
        assert reply.asked == ("sinker-0", "sinker-1", "worker-0")

    def scraped() -> str:
        with urllib.request.urlopen(one.about["http_url"] + "/metrics", timeout=60) as page:
            return str(page.read(), "utf-8")

    eventually(lambda: sum(float(n) for n in re.findall(r'outcome="handled".* (\S+)', scraped())) == 100)
    assert one.stop() == 0


def test_dead_sinkers_are_started_again(place: Path, master: Callable[..., Master], storage: FileStorage) -> None:
    fill(storage, 500)
    one = master(
        sinkers=sinkers("dies_now_and_then", batch_size=10, max_tries=9),
        workers={"count": 0, "backoff_min_seconds": 0.05, "backoff_max_seconds": 0.1},
    )

    eventually(lambda: is_empty(storage), 60)
    eventually(lambda: sum(row["restarts"] for row in one.status().values()) >= 2)
    os.kill(one.process.pid, signal.SIGKILL)
    one.process.wait()
    eventually(lambda: not list((place / "run").glob("sinker-*.sock")))


def test_a_killed_master_costs_no_message(place: Path, master: Callable[..., Master], storage: FileStorage) -> None:
    fill(storage, 3000)
    settings: dict[str, Any] = {"sinkers": sinkers("counts", batch_size=10), "workers": {"count": 0}}
    one = master(**settings)
    eventually(ledger)

    os.kill(one.process.pid, signal.SIGKILL)
    one.process.wait()
    two = master(**settings)

    eventually(lambda: is_empty(storage), 60)
    assert two.stop() == 0
    assert sorted(ledger()) == [(offset, 0) for offset in range(3000)]
