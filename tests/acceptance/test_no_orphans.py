"""If a master is killed under load, no process stays behind, and no message is lost or stored twice."""

from __future__ import annotations

from tests.acceptance.fleets import SETTLE_SECONDS, MakeFleet
from tests.conftest import eventually
from tests.processes import alive
from tests.servers import kafka_tools


def test_a_killed_master_leaves_nothing_behind(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=2)
    fleet.start("worker-0")
    load = fleet.load(rate=500)
    eventually(lambda: fleet.workers()["worker-0"]["batches_total"], SETTLE_SECONDS, "it stores")

    everybody = fleet.family()
    assert any(process.name() == "java" for process in everybody)
    fleet.kill()
    eventually(lambda: not alive(everybody), SETTLE_SECONDS, "all of them ended")
    logs = "".join(path.read_text() for path in (fleet.directory / "logs").glob("*.log"))
    assert "the master is gone" in logs, logs
    assert "Traceback" not in logs, logs
    state = kafka_tools.describe_state(fleet.broker.bootstrap_servers, fleet.group)
    assert (state.state, state.members) == ("Empty", 0), "the worker left its group"

    fleet.start("worker-0")
    fleet.finish(load)
    eventually(fleet.is_caught_up, SETTLE_SECONDS, "all is committed")
    checkpoints = list((fleet.directory / "data" / "scratch" / "worker-0").glob("query-*"))
    assert len(checkpoints) == 1, "the checkpoints of killed workers are gone"
    fleet.stored_once()
