import asyncio
import json
import os
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from typing import Never

import pytest

from kctl.config.load import load
from kctl.config.sections import CollectSection
from kctl.groups.broker_cache import BrokerCache
from kctl.master.collector import Collector
from kctl.master.events import EventFeed
from kctl.master.health import HealthRules
from kctl.master.launch import launches, sinker_settings, supervision_policies
from kctl.master.members import Agents, Members
from kctl.master.process_supervisor import SupervisionPolicy
from kctl.master.restart import RestartPolicy
from kctl.master.snapshot import FleetSnapshot
from kctl.master.supervisor import Supervisor
from kctl.reduce.base import BrokerSnapshot
from kctl.rpc.fan_out import AgentPool
from kctl.status import Status, rules
from kctl_agent.engine.main import parse as parse_engine
from kctl_agent.errors import UnknownMethod
from kctl_agent.rpc.messages import Request
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.worker.settings import parse
from tests.configurations import KAFKA, loaded
from tests.partitions import Row, columns_of
from tests.servers.scripted_agent import Answers, Refuses, ScriptedAgent, Step
from tests.unit.kctl_master.no_brokers import NoBrokers

TOPICS: JsonObject = {"rows": [{"topic": "t", "partition": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}]}


class Fleet:
    def __init__(self, folder: Path, **script: Step) -> None:
        folder.chmod(0o700)
        self.pid, self.generation = 7, 3
        self.leader: str | None = "somebody"
        self.partitions = [0]
        self.asked_twice = threading.Event()  # set after the first answer about offsets, before a question for metadata
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
        self.pool, self.cluster = AgentPool(), BrokerCache(NoBrokers(), "127.0.0.1:1", "readers")
        members = Members(folder, dict, lambda: (), self.pool)
        agents = Agents(folder, self.pool)
        policy = SupervisionPolicy(RestartPolicy(1.0, 2.0, 60.0), HealthRules(60.0))
        supervisor = Supervisor([], {"worker": policy}, agents.ping)
        config = loaded(folder, f"{KAFKA}[collect]\ntimeout_seconds = 30\n")
        self.collector = Collector(config, members, self.cluster, supervisor, EventFeed(), dict)

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
    await fleet.collector.collect()  # the brokers have failed in between, so it may ask once more
    fleet.asked()
    await fleet.collector.collect()
    assert fleet.asked()["metadata_brokers"] == 0


async def test_metadata_are_asked_for_again_once_the_brokers_are_back(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        await fleet.collector.collect()
    fleet.asked()
    monkeypatch.setattr(fleet.cluster, "error", None)

    await fleet.collector.collect()

    assert fleet.asked()["metadata_topics"] == 1
    monkeypatch.setattr(fleet.cluster, "_back_at", inf)  # just now, for each collection
    for _ in range(2):
        await fleet.collector.collect()
    assert fleet.asked()["metadata_topics"] == 2


async def test_offsets_age_while_brokers_hold_up_the_snapshot(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: NoBrokers) -> Never:
        fleet.asked_twice.wait(30)
        threading.Event().wait(0.3)
        raise ConnectionError

    monkeypatch.setattr(NoBrokers, "read", silent)

    snapshot = await fleet.collector.collect()

    assert (snapshot.partitions[0].age_seconds or 0) >= 0.79


@pytest.mark.shows("while no broker answers, each answer about offsets names it and is incomplete: exit code 3")
async def test_each_answer_about_offsets_names_silent_brokers(fleet: Fleet) -> None:
    about_offsets = ["offset_checker", "member_leader", "metadata_brokers", "metadata_topics"]

    snapshot = await fleet.collector.collect()

    asked = {rpc: snapshot.reduced(rpc) for rpc in (*about_offsets, "block_size", "workers", "ping")}
    assert [rpc for rpc, found in asked.items() if "brokers" in {each.sender for each in found.failed}] == about_offsets


async def test_an_agent_is_silent_since_it_was_last_heard(fleet: Fleet) -> None:
    snapshots: asyncio.Queue[FleetSnapshot] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def prepare(snapshot: FleetSnapshot) -> None:
        loop.call_soon_threadsafe(snapshots.put_nowait, snapshot)  # the first call comes on another thread

    fleet.collector.prepare.append(prepare)
    collecting = asyncio.create_task(fleet.collector.run())
    heard = await snapshots.get()

    fleet.agent.vanish()
    while not (latest := await snapshots.get()).since:
        heard = latest
    collecting.cancel()

    assert latest.lasting("guest", "silent") == latest.taken_at - heard.taken_at


@pytest.mark.parametrize("fleet", [{"block_size": Answers({"storage": "s", "full": "by its limit"})}], indirect=True)
async def test_a_collection_that_waited_for_nobody_shortens_the_pause_even_if_the_storage_is_full(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: asyncio.Queue[float] = asyncio.Queue()

    async def pause(seconds: float) -> None:
        pauses.put_nowait(seconds)
        await asyncio.Event().wait()

    monkeypatch.setattr(BrokerCache, "error", property(lambda _: None, lambda *_: None), raising=False)
    monkeypatch.setattr(asyncio, "sleep", pause)
    collecting = asyncio.create_task(fleet.collector.run())
    found = await pauses.get()
    collecting.cancel()

    latest = fleet.collector.latest()
    assert latest is not None
    assert latest.since
    assert found != CollectSection().interval_seconds


async def test_an_open_transaction_counts_from_the_last_move(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "_TRANSACTION_SECONDS", 0.0)

    async def status(end: int) -> Status:
        row = Row("t", 1, 0, end, None, end, None, None, None, 0.0, behind_transaction=3)
        monkeypatch.setattr(fleet.cluster, "snapshot", lambda: BrokerSnapshot(columns_of(row, now=time.monotonic())))
        return (await fleet.collector.collect()).assessments[-1].status

    assert [await status(end) for end in (5, 6, 6)] == [Status.OK, Status.OK, Status.WARN]


TOML = """
[kafka]
bootstrap_servers = "one:9092,two:9092"
group = "readers"
topics = ["orders", "payments"]
static_membership = true
[workers]
count = 3
backoff_min_seconds = 2
[spark]
conf = {"spark.sql.shuffle.partitions" = "4"}
"""


def test_each_worker_gets_all_that_its_own_parser_wants_and_nothing_it_does_not_know(tmp_path: Path) -> None:
    engine, *workers = launches(loaded(tmp_path, TOML), [Path("/jars/a.jar")])
    reported = [parse(json.dumps(launch.settings)) for launch in workers]

    assert [settings.name for settings in reported] == ["worker-0", "worker-1", "worker-2"]
    assert [settings.kafka.group_instance_id for settings in reported] == [f"kctl-worker-{n}" for n in range(3)]
    assert len({settings.scratch_dir for settings in reported}) == 3
    assert {settings.run_dir for settings in reported} == {tmp_path / "run"}
    first = reported[0]
    assert (first.kafka.bootstrap_servers, first.kafka.topics) == ("one:9092,two:9092", ("orders", "payments"))
    assert first.spark is None
    spark = parse_engine(json.dumps(engine.settings)).spark
    conf = {"spark.default.parallelism": "2", "spark.sql.shuffle.partitions": "4"}
    assert (spark.jars, spark.conf) == (("/jars/a.jar",), conf)
    assert (spark.master, spark.driver_memory, spark.workers) == ("local[6]", "768m", 3)
    assert first.storage["path"] == str(tmp_path / "data" / "storage.sqlite")


@pytest.mark.shows("static members of several hosts never fence each other, because their ids have the host")
def test_static_members_of_two_hosts_have_different_ids(tmp_path: Path) -> None:
    one_host = loaded(tmp_path, TOML)
    more = '[storage]\nmode = "redis"\nurl = "redis://redis:6379/0"\n[http]\ninsecure = true\nhost = "10.0.0.1"\n'
    ids = []
    for name in ('name = "node-1"', 'name = "node-2"', ""):
        hosts = f'[hosts]\nurl = "http://node:9750"\nallow_plain = true\n{name}\n'
        one_host.path.write_text(TOML + more + hosts)
        _, first, *_ = launches(load(one_host.path, {}), [])
        ids.append(parse(json.dumps(first.settings)).kafka.group_instance_id)

    assert ids == ["kctl-node-1-worker-0", "kctl-node-2-worker-0", f"kctl-{socket.gethostname()}-worker-0"]


@pytest.mark.shows("sinkers of two hosts own separate claims, even with the same system hostname")
def test_sinkers_of_two_masters_are_two_owners_and_of_one_the_same_one_again(tmp_path: Path) -> None:
    owners = []
    for name in ("one", "two", "one"):
        (tmp_path / name).mkdir(exist_ok=True)
        owners.append(str(sinker_settings(loaded(tmp_path / name, TOML), "sinker-0")["owner"]))

    assert owners[0] == owners[2] != owners[1]
    assert {owner.partition("/")[2] for owner in owners} == {"sinker-0"}


@pytest.mark.parametrize("left", [b"", b"\0" * 32, b"\xff" * 32, b"0123"])
def test_an_owner_id_that_a_power_failure_left_damaged_is_drawn_again_and_kept(tmp_path: Path, left: bytes) -> None:
    fleet = loaded(tmp_path, TOML)
    sinker_settings(fleet, "sinker-0")
    [path] = tmp_path.rglob("owner-id")
    path.write_bytes(left)

    owners = [str(sinker_settings(fleet, "sinker-0")["owner"]) for _ in range(2)]

    assert owners[0] == owners[1]
    assert re.fullmatch("[0-9a-f]{32}/sinker-0", owners[0])


def test_workers_have_drivers_of_their_own_or_wait_in_tasks_of_an_engine(tmp_path: Path) -> None:
    first, *others = launches(
        loaded(tmp_path, TOML.replace("count = 3", 'count = 3\nengine = "own"')), [Path("/jars/a.jar")]
    )
    spark = parse(json.dumps(first.settings)).spark

    assert [first.name, *(launch.name for launch in others)] == ["worker-0", "worker-1", "worker-2"]
    assert spark is not None
    assert (spark.name, spark.jars, spark.master, spark.workers) == ("worker-0", ("/jars/a.jar",), "local[2]", 1)

    engine, calling, *_ = launches(
        loaded(tmp_path, f'{TOML}\n[storage]\nmode = "directly"\n[sinkers]\nhandler = "mine:handle"\n'), []
    )

    assert parse_engine(json.dumps(engine.settings)).spark.master == "local[512]"
    assert calling.settings["storage"]["slots"] == {"folder": str(tmp_path / "data/scratch/worker-0"), "count": 2}  # type: ignore[index]


PROCESSORS = len(os.sched_getaffinity(0))


@pytest.mark.parametrize(
    ("master", "becomes"),
    [
        ("local", "local[3]"),
        ("local[2]", "local[6]"),
        ("local[2,4]", "local[6,4]"),
        ("local[*]", f"local[{3 * PROCESSORS}]"),
        ("yarn", "yarn"),
    ],
)
def test_an_engine_has_the_tasks_of_all_workers_in_its_own_jvm(tmp_path: Path, master: str, becomes: str) -> None:
    engine, *_ = launches(loaded(tmp_path, f'{TOML}\nmaster = "{master}"\n[storage]\nmode = "redis"\n'), [])

    assert parse_engine(json.dumps(engine.settings)).spark.master == becomes


@pytest.mark.shows("an engine has its own memory limits")
def test_an_engine_has_memory_limits_of_its_own_and_is_found_to_hang_before_its_workers(tmp_path: Path) -> None:
    policies = supervision_policies(
        loaded(tmp_path, TOML.replace("count = 3", 'memory_soft = "300m"') + '[engine]\nmemory_soft = "3g"\n')
    )
    worker, engine = policies["worker"].rules, policies["engine"].rules

    assert (worker.memory_soft_bytes, engine.memory_soft_bytes) == (300 << 20, 3 << 30)
    assert (worker.main_thread_seconds, engine.main_thread_seconds) == (60.0, 30.0)
    assert engine.section == "engine"


@pytest.mark.parametrize(
    ("master", "daemon"), [("k8s://one:6443", "pyspark.daemon"), ("yarn", "pyspark.daemon"), ("local[2]", None)]
)
def test_executors_need_no_module_of_kctl_for_a_table(tmp_path: Path, master: str, daemon: str | None) -> None:
    lake = '[storage]\nmode = "lake"\nuri = "file:///srv/orders"\n'

    engine, *_ = launches(loaded(tmp_path, TOML.replace("[spark]\n", f'[spark]\nmaster = "{master}"\n') + lake), [])

    assert parse_engine(json.dumps(engine.settings)).spark.conf.get("spark.python.daemon.module") == daemon
