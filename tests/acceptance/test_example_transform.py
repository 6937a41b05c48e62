"""Records that the transform of examples/ drops are committed, and never stored."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, MakeFleet
from tests.conftest import eventually

pytestmark = pytest.mark.long

EXAMPLES = Path(__file__).parents[2] / "examples"


def order(number: int, status: str) -> bytes:
    return json.dumps({"id": f"o{number}", "amount": number, "status": status, "note": "x"}).encode()


def test_the_example_keeps_what_is_paid_and_the_rest_counts_as_read(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=1, workers_more='transform = "transform:paid"')
    shutil.copy(EXAMPLES / "transform.py", fleet.directory)
    fleet.start("worker-0")

    for number, status in enumerate(("open", "paid", "open", "paid", "open")):
        fleet.send(1, order(number, status))

    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is committed, the last record, which is open, too")
    stored = [message for block in fleet.storage.blocks() for message in block.messages()]
    assert [(message.offset, json.loads(message.value or b"")) for message in stored] == [
        (1, {"id": "o1", "amount": 1.0}),
        (3, {"id": "o3", "amount": 3.0}),
    ]
