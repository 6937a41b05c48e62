"""Following `kctl advise` with `kctl scale` meets a load that one worker cannot, and an event reports that it helped.

A worker's capacity is that of its handler, which takes a fixed time for each message inside the batch.
"""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import pytest

from tests.acceptance.fleets import Fleet, MakeFleet
from tests.conftest import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(500)]

HANDLED_PER_SECOND = 250
CAPACITY = 200
"""What is left of it with Spark's part of each batch, on two busy processors."""
FOLLOWED_SECONDS = 360.0
HANDLER = f"""
import time

def handle(messages):
    time.sleep(len(messages) / {HANDLED_PER_SECOND})
    return [True] * len(messages)
"""
ADVICE = """
[advice]
window_seconds = 300
utilisation = 0.9
up_after_seconds = 5
gap_seconds = 5
pause_seconds = 10
catch_up_seconds = 300
max_up = 16
"""


@pytest.mark.shows("following the advice meets a load of 2, 4 and 8 times a worker's capacity on a real Spark fleet")
@pytest.mark.parametrize("times", [2, 4, 8])
def test_following_the_advice_meets_the_load(times: int, make_fleet: MakeFleet) -> None:
    fleet = make_fleet(
        workers=1,
        partitions=40,
        engine="shared",
        trigger="4",
        storage='mode = "directly"',
        sinkers='handler = "paced:handle"',
        workers_more=f"max_records_per_batch = {4 * HANDLED_PER_SECOND}",
        http=ADVICE,
    )
    (fleet.directory / "paced.py").write_text(HANDLER)
    fleet.load(rate=times * CAPACITY)
    fleet.start("worker-0")

    outcome = eventually(lambda: followed(fleet), FOLLOWED_SECONDS, "the advice is followed, with an outcome")

    found = advice(fleet)
    assert outcome["is_met"], outcome
    assert found["current"] > times, "the utilisation leaves room"
    assert 0.5 * CAPACITY < found["capacity_per_second"] < HANDLED_PER_SECOND
    assert outcome["text"] in [event["text"] for event in history(fleet)["marks"] if event["kind"] == "advice"]


def advice(fleet: Fleet) -> Any:
    return json.loads(fleet.kctl("advise", "-o", "json", exit_code=None).stdout)


def followed(fleet: Fleet) -> Any:
    """Follows the advice; returns the outcome, once there is one."""
    found = advice(fleet)
    print(f"{time.monotonic():.1f}", found["answer"], found["reason"], found["current"], found["workers"], flush=True)
    if found["answer"] == "workers":
        fleet.kctl("scale", f"workers={found['workers']}", "--wait")
    return found["outcome"]


def history(fleet: Fleet) -> Any:
    with urllib.request.urlopen(f"{fleet.url()}/api/v1/history") as answer:
        return json.load(answer)
