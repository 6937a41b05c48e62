from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest

from kctl.config.load import load
from kctl.config.sections import Config
from kctl.master.launch import launches, sinker_settings, supervision_policies
from kctl_agent.engine.main import parse as parse_engine
from kctl_agent.worker.settings import parse
from tests.configurations import loaded

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


def config(folder: Path) -> Config:
    return loaded(folder, TOML)


def test_each_worker_gets_all_that_its_own_parser_wants_and_nothing_it_does_not_know(tmp_path: Path) -> None:
    engine, *workers = launches(config(tmp_path), [Path("/jars/a.jar")])
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
    one_host = config(tmp_path)
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
        owners.append(str(sinker_settings(config(tmp_path / name), "sinker-0")["owner"]))

    assert owners[0] == owners[2] != owners[1]
    assert {owner.partition("/")[2] for owner in owners} == {"sinker-0"}


@pytest.mark.parametrize("left", [b"", b"\0" * 32, b"\xff" * 32, b"0123"])
def test_an_owner_id_that_a_power_failure_left_damaged_is_drawn_again_and_kept(tmp_path: Path, left: bytes) -> None:
    fleet = config(tmp_path)
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
