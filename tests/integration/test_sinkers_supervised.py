"""A master's sinkers are in every list, next to its workers."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl_agent.storage.file import FileStorage
from tests.conformance.given import fill
from tests.conftest import eventually
from tests.integration.conftest import Master
from tests.integration.sinkers import place, sinkers, storage

__all__ = ["place", "storage"]


@pytest.mark.shows("sinkers are supervised and listed like workers")
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

    eventually(lambda: sum(float(n) for n in re.findall(r'outcome="handled".* (\S+)', one.get("/metrics"))) == 100)
    assert one.stop() == 0
