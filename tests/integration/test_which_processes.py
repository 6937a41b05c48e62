"""Which processes `restart` and `scale` start and stop: real idle processes with scripted agents."""

from __future__ import annotations

import os
from pathlib import Path

from kctl.master.operations.base import Caller, Operation
from tests.integration.scripted_fleet import Fleet, is_running, running

NAMES = ("engine", "worker-0", "worker-1", "worker-2")
TOML = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
group = "g"
topics = ["orders", "payments"]
[workers]
count = 3
[spark]
driver_memory = "1g"
"""


async def ended(fleet: Fleet, kind: str, **params: object) -> Operation:
    operation = await fleet.operations.submit(kind, params, Caller(os.getuid()), 30.0)
    await fleet.ends[operation.id].wait()
    done = fleet.operations.find(operation.id)
    assert done.state == "done", done
    return done


def pids(fleet: Fleet) -> dict[str, int | None]:
    return {name: fleet.supervisor.process(name).pid for name in fleet.supervisor.names}


async def test_a_restart_of_all_begins_the_fatal_ones_and_leaves_an_unchanged_engine(short_dir: Path) -> None:
    async with running(short_dir, TOML, NAMES) as fleet:
        await ended(fleet, "reload")
        await ended(fleet, "restart", name="engine")
        before = pids(fleet)
        broken = fleet.supervisor.process("worker-2")
        launch, broken.launch = broken.launch, fleet.launch("worker-2", ["sh", "-c", "exit 78"])
        broken.restart()
        await broken.until(lambda: broken.state == "fatal")
        broken.launch = launch

        planned = await ended(fleet, "restart", all=True, rolling=True, dry_run=True)
        done = await ended(fleet, "restart", all=True, rolling=True)

        assert planned.result == {"restarted": ["worker-2", "worker-0", "worker-1"], "engine": False}
        assert done.text == "restarted: worker-0, worker-1, worker-2"
        after = pids(fleet)
        assert after["engine"] == before["engine"]
        assert all(after[name] not in (None, before[name]) for name in NAMES[1:])

        (short_dir / "kctl.toml").write_text(TOML.replace("1g", "2g"))
        reloaded = await ended(fleet, "reload")
        restarted = await ended(fleet, "restart", all=True, rolling=True)

        sentence = "the engine restarts first: no worker reads for about 5 s"
        assert reloaded.text.startswith(f"after `kctl restart engine --rolling` ({sentence}): spark.driver_memory ")
        assert restarted.text == "restarted: engine, worker-0, worker-1, worker-2"
        assert pids(fleet)["engine"] != before["engine"]


async def test_scaling_takes_away_first_what_was_drained_and_reports_what_runs(short_dir: Path) -> None:
    async with running(short_dir, TOML, NAMES) as fleet:
        before = pids(fleet)
        await ended(fleet, "drain", name="worker-1")

        down = await ended(fleet, "scale", workers=2)

        assert down.result == {"started": [], "stopped": ["worker-1"], "running": ["worker-0", "worker-2"]}
        assert down.text.startswith("2 workers until")
        assert pids(fleet) == {name: before[name] for name in ("engine", "worker-0", "worker-2")}
        (short_dir / "kctl.toml").write_text(TOML.replace("count = 3", "count = 2\ntrigger_seconds = 7"))
        await ended(fleet, "reload")
        settings = [fleet.supervisor.process(name).launch.settings for name in ("worker-0", "worker-2")]
        assert [each["pipeline"]["trigger_seconds"] for each in settings] == [7, 7], "whatever their numbers are"  # type: ignore[index]

        await ended(fleet, "stop", name="worker-0")
        up = await ended(fleet, "scale", workers=3)

        assert up.result == {
            "started": ["worker-0", "worker-1"],
            "stopped": [],
            "running": ["worker-0", "worker-1", "worker-2"],
        }
        await is_running(fleet.supervisor.process("worker-1"))
