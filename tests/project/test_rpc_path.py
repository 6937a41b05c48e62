"""How far a question of `kctl rpc` has to go, over the master's socket and an agent's and back."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from types import FrameType

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
from tests.unit.kctl_master.no_brokers import NoBrokers


@contextmanager
def passed_files() -> Iterator[set[str]]:
    """The files of which a function is called, in this thread and those that begin."""
    files: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (found := re.search(r"/(kctl|kctl_agent)/.*", frame.f_code.co_filename)):
            files.add(found[0])

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.mark.shows("a question of `kctl rpc` passes at most 33 files, from the command line to the agent and back")
async def test_a_question_passes_few_files_from_the_command_line_to_the_agent_and_back(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir, pool, latest = short_dir / "run", AgentPool(), healthy()
    run_dir.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_dir))
    brokers = BrokerCache(NoBrokers(), "127.0.0.1:1", "g")
    members = Members(run_dir, lambda: {"worker-0": "worker"}, lambda: (), pool)
    verdicts = Verdicts(lambda: latest, 5.0, lambda: latest.taken_at)
    service = MasterService(members, brokers, lambda: (), verdicts, EventFeed())
    control = ControlServer(lambda request, _caller: service.answer(request))
    with passed_files() as files, ExitStack() as stack:
        server = stack.enter_context(AgentServer(run_dir, "worker-0"))
        replies = (StorageReply("file:/storage", pending=3),)
        server.publish(Snapshot(monotonic(), WorkerReply.starting("worker-0", "worker"), replies=replies))
        await control.start(run_dir)
        entry = fleets.register("rpc-path", run_dir, short_dir / "kctl.toml", {"XDG_RUNTIME_DIR": str(short_dir)})
        stack.callback(fleets.unregister, entry)
        await asyncio.to_thread(run, ["rpc", "block_size"])  # it connects
        capsys.readouterr()
        files.clear()

        code = await asyncio.to_thread(run, ["rpc", "block_size"])
        passed = sorted(files)
        await control.close()
        pool.close()
    await brokers.close()

    assert (code, capsys.readouterr().out.splitlines()[1].split()[0]) == (0, "3")
    assert {"/kctl_agent/rpc/server.py", "/kctl/reduce/reducers.py"} <= set(passed), "other threads are seen too"
    assert len(passed) <= 33, "\n".join(passed)
