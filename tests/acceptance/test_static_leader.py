"""With static membership, a killed leader of the group returns within its session."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, Fleet, MakeFleet
from tests.conftest import eventually

WORKERS = ("worker-0", "worker-1")


@pytest.mark.long  # tests/integration/test_membership.py has static members without Spark
@pytest.mark.shows("a static leader's restart causes no rebalance: 0 lost, 0 twice")
def test_a_killed_static_leader_leads_on_and_all_keep_their_partitions(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=2, partitions=4, backoff="0.2", kafka="static_membership = true")
    fleet.config.write_text(fleet.config.read_text().replace("timeout_seconds = 6.0", "timeout_seconds = 40.0"))
    fleet.start()
    eventually(lambda: fleet.is_running(*WORKERS) and fleet.owners() == {*WORKERS}, START_SECONDS, "both read")
    load = fleet.load(rate=500)
    eventually(lambda: all(row["current_offset"] for row in fleet.offsets().values()), SETTLE_SECONDS, "all commit")
    before = group_of(fleet)

    os.kill(fleet.workers()[before["leads"]]["pid"], signal.SIGKILL)
    after = eventually(
        lambda: (now := group_of(fleet))["leader"] not in (None, before["leader"]) and now, 40, "it leads again"
    )

    assert after == {**before, "leader": after["leader"]}
    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "everything is stored and committed")
    assert group_of(fleet) == after
    fleet.stored_once()


def group_of(fleet: Fleet) -> dict[str, Any]:
    answer = fleet.rpc("member_leader")
    shares = {row["worker"]: sorted(each["partition"] for each in row["partitions"]) for row in answer["members"]}
    leads = next((row["worker"] for row in answer["members"] if row["is_leader"]), None)
    return {"generation": answer["generation"], "leader": answer["leader"], "leads": leads, "shares": shares}
