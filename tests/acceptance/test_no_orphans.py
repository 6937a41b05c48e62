"""If a master is killed or stopped under load, no process stays behind, and no message is lost or stored twice."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kctl_agent.spark.class_archive import archive_path
from tests.acceptance.fleets import SETTLE_SECONDS, MakeFleet
from tests.conftest import eventually
from tests.processes import alive
from tests.servers import kafka_tools

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


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


@pytest.mark.long  # Ctrl-C in test_demo.py ends the same parts
def test_sigterm_stops_workers_jvms_and_sockets_in_order(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(workers=1, partitions=1)
    fleet.start("worker-0")
    everybody = fleet.family()
    mapped = {Path(each.path) for each in fleet.jvm().memory_maps()}
    archive = archive_path().resolve()
    assert archive in mapped or not archive.exists(), "it starts with the classes that set-up recorded"

    assert fleet.stop() == 0

    assert not alive(everybody)
    assert [name for name in os.listdir(fleet.directory / "run") if name.endswith((".sock", ".json"))] == []
    assert "left" in (fleet.directory / "logs" / "worker-0.log").read_text().splitlines()[-1]
