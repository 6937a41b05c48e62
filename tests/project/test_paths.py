"""How far an answer has to go from a snapshot to the table of `kctl rpc`, and a committed offset to `/metrics`."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path
from time import monotonic

import pytest

from kctl import fleets
from kctl.cli.entry import run
from kctl.groups.broker_cache import BrokerCache
from kctl.master.control.server import ControlServer
from kctl.master.control.service import MasterService
from kctl.master.events import EventFeed
from kctl.master.members import Members
from kctl.master.verdict import Verdicts
from kctl.rpc.fan_out import AgentPool
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.workers import WorkerReply
from kctl_agent.rpc.server import AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from tests.fleet_snapshot import healthy
from tests.offset_path import NUMBER, Walk, walked, watched
from tests.unit.kctl_master.no_brokers import NoBrokers


@pytest.mark.shows("an answer to `getXxx` passes at most 18 files from the agent's snapshot to the table of `kctl rpc`")
async def test_an_answer_passes_at_most_18_files_from_the_snapshot_to_the_printed_table(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, pool, latest, walk = short_dir / "run", AgentPool(), healthy(), Walk()
    run_dir.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    brokers = BrokerCache(NoBrokers(), "127.0.0.1:1", "g")
    members = Members(run_dir, lambda: {"worker-0": "worker"}, lambda: (), pool)
    verdicts = Verdicts(lambda: latest, 5.0, lambda: latest.taken_at)
    service = MasterService(members, brokers, lambda: (), verdicts, EventFeed())
    control = ControlServer(lambda request, _caller: service.answer(request))
    replies = (StorageReply("file:/storage", pending=NUMBER),)
    with watched(walk), ExitStack() as stack:
        server = stack.enter_context(AgentServer(run_dir, "worker-0"))
        server.publish(Snapshot(monotonic(), WorkerReply.starting("worker-0", "worker"), replies=replies))
        await control.start(run_dir)
        entry = fleets.register("rpc-path", run_dir, short_dir / "kctl.toml", {"XDG_RUNTIME_DIR": str(short_dir)})
        stack.callback(fleets.unregister, entry)
        await asyncio.to_thread(run, ["rpc", "block_size"])
        await control.close()
        pool.close()
    await brokers.close()

    assert str(NUMBER) in capsys.readouterr().out
    assert {"agent/kctl_agent/rpc/dispatch.py", "kctl/reduce/base.py"} <= walk.files, "other threads are seen too"
    assert len(walk.files) <= 18, sorted(walk.files)


@pytest.mark.shows("a committed offset passes at most 20 files and 8 value types to `/metrics`, status rules included")
def test_a_committed_offset_passes_at_most_20_files_and_8_value_types_on_its_way_to_metrics() -> None:
    walk = walked()

    assert len(walk.files) <= 20, sorted(walk.files)
    assert len(walk.types) <= 8, sorted(walk.types)
