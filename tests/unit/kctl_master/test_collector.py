from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Never

import pytest

from kctl.config.load import load
from kctl.groups.broker_cache import BrokerCache
from kctl.master.collector import Collector
from kctl.master.events import EventFeed
from kctl.master.health import HealthRules
from kctl.master.members import Agents, Members
from kctl.master.process_supervisor import SupervisionPolicy
from kctl.master.restart import RestartPolicy
from kctl.master.snapshot import FleetSnapshot
from kctl.master.supervisor import Supervisor
from kctl.reduce.base import BrokerSnapshot
from kctl.rpc.fan_out import AgentPool
from kctl.status import Status, rules
from kctl_agent.errors import UnknownMethod
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.wire import JsonObject
from tests.partitions import Row, columns_of
from tests.servers.scripted_agent import Answers, Refuses, ScriptedAgent, Step
from tests.unit.kctl_master.no_brokers import NoBrokers

TOPICS: JsonObject = {"rows": [{"topic": "t", "partition": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}]}


class Fleet:
    """One attached agent, and a collector that takes its snapshot."""

    def __init__(self, folder: Path, **script: Step) -> None:
        """`script` replaces answers of the agent."""
        folder.chmod(0o700)
        self.pid, self.generation = 7, 3
        self.leader: str | None = "somebody"
        self.partitions = [0]
        self.asked_twice = threading.Event()
        """Set after the first answer about offsets; the collector asks for metadata only later."""
        answers: dict[str, Step] = {
            "block_size": Answers({"rows": []}),
            "offset_checker": Answers(self.offsets),
            "member_leader": Answers(lambda _: {"leader": self.leader, "generation": self.generation}),
            "workers": Answers({"name": "guest"}),
            "ping": Answers(lambda _: {"name": "guest", "pid": self.pid}),
            "metadata_brokers": Answers({"rows": []}),
            "metadata_topics": Answers(self.topics),
        }
        self.agent = ScriptedAgent(folder, "guest", answers | script)
        (folder / "kctl.toml").write_text(
            '[kafka]\nbootstrap_servers = "127.0.0.1:1"\ngroup = "g"\ntopics = ["t"]\n[collect]\ntimeout_seconds = 30\n'
        )
        self.pool, self.cluster = AgentPool(), BrokerCache(NoBrokers(), "127.0.0.1:1", "readers")
        members = Members(folder, dict, lambda: (), self.pool)
        agents = Agents(folder, self.pool)
        policy = SupervisionPolicy(RestartPolicy(1.0, 2.0, 60.0), HealthRules(60.0))
        supervisor = Supervisor([], {"worker": policy}, agents.ping)
        self.collector = Collector(load(folder / "kctl.toml", {}), members, self.cluster, supervisor, EventFeed(), dict)

    def offsets(self, _: Request) -> JsonObject:
        row = {"topic": "t", "generation": self.generation, "age_seconds": 0.5}
        return {"rows": [{**row, "partition": number} for number in self.partitions]}

    def topics(self, _: Request) -> JsonObject:
        self.asked_twice.set()
        return TOPICS

    def asked(self) -> Counter[str]:
        asked = Counter(request.rpc for request in self.agent.requests)
        self.agent.requests.clear()
        return asked


@pytest.fixture
async def fleet(anyio_backend: str, short_dir: Path, request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    fleet = Fleet(short_dir, **getattr(request, "param", {}))
    with fleet.agent:
        yield fleet
        fleet.pool.close()
        await fleet.cluster.close()


async def test_the_leader_is_asked_again_after_a_change_and_while_it_is_not_known(fleet: Fleet) -> None:
    fleet.leader = None
    for _ in range(2):
        await fleet.collector.collect()
        assert fleet.asked()["member_leader"] == 1
    fleet.leader = "somebody"
    for asked in (1, 0):
        await fleet.collector.collect()
        assert fleet.asked()["member_leader"] == asked

    fleet.generation = 4
    snapshot = await fleet.collector.collect()

    assert fleet.asked()["member_leader"] == 1
    assert snapshot.member_leader.result.generation == 4, "as in the same snapshot's offsets"
    fleet.partitions = []
    await fleet.collector.collect()
    assert fleet.asked()["member_leader"] == 1


@pytest.mark.parametrize("fleet", [{"metadata_brokers": Refuses(UnknownMethod("-"))}], indirect=True)
async def test_an_agent_too_old_to_know_a_question_is_not_asked_again_each_time(fleet: Fleet) -> None:
    snapshot = await fleet.collector.collect()

    assert [each.code for each in snapshot.kept["metadata_brokers"].failed[:1]] == ["unknown_method"]
    assert fleet.asked()["metadata_brokers"] == 1
    await fleet.collector.collect()
    assert fleet.asked()["metadata_brokers"] == 0


async def test_offsets_age_while_brokers_hold_up_the_snapshot(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: NoBrokers) -> Never:
        fleet.asked_twice.wait(30)
        threading.Event().wait(0.3)
        raise ConnectionError

    monkeypatch.setattr(NoBrokers, "read", silent)

    snapshot = await fleet.collector.collect()

    assert (snapshot.partitions[0].age_seconds or 0) >= 0.79


async def test_an_agent_is_silent_since_it_was_last_heard(fleet: Fleet) -> None:
    snapshots: asyncio.Queue[FleetSnapshot] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def prepare(snapshot: FleetSnapshot) -> None:
        """The first call comes on another thread."""
        loop.call_soon_threadsafe(snapshots.put_nowait, snapshot)

    fleet.collector.prepare.append(prepare)
    collecting = asyncio.create_task(fleet.collector.run())
    heard = await snapshots.get()

    fleet.agent.vanish()
    while not (latest := await snapshots.get()).since:
        heard = latest
    collecting.cancel()

    assert latest.lasting("guest", "silent") == latest.taken_at - heard.taken_at


async def test_an_open_transaction_counts_from_the_last_move(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_TRANSACTION_SECONDS", 0.0)

    async def status(end: int) -> Status:
        row = Row("t", 1, 0, end, None, end, None, None, None, 0.0, behind_transaction=3)
        monkeypatch.setattr(fleet.cluster, "snapshot", lambda: BrokerSnapshot(columns_of(row, now=time.monotonic())))
        return (await fleet.collector.collect()).assessments[-1].status

    assert [await status(end) for end in (5, 6, 6)] == [Status.OK, Status.OK, Status.WARN]
