"""What workers get at their start: the worker's own parser is the judge."""

from __future__ import annotations

import json
from pathlib import Path

from kctl.config import Config, load
from kctl.master.launch import launches, supervision_policy
from kctl_agent.worker.settings import parse

TOML = """
[kafka]
bootstrap_servers = "one:9092,two:9092"
group = "readers"
topics = ["orders", "payments"]
static_membership = true
[workers]
count = 3
backoff_min_seconds = 2
max_failures = 4
[spark]
conf = {"spark.sql.shuffle.partitions" = "4"}
"""


def config(folder: Path) -> Config:
    path = folder / "kctl.toml"
    path.write_text(TOML)
    return load(path, {})


def test_each_worker_gets_all_that_its_own_parser_wants_and_nothing_it_does_not_know(tmp_path: Path) -> None:
    reported = [parse(json.dumps(launch.settings)) for launch in launches(config(tmp_path), [Path("/jars/a.jar")])]

    assert [settings.name for settings in reported] == ["worker-0", "worker-1", "worker-2"]
    assert [settings.kafka.group_instance_id for settings in reported] == [f"kctl-worker-{n}" for n in range(3)]
    assert len({settings.scratch_dir for settings in reported}) == 3
    assert {settings.run_dir for settings in reported} == {tmp_path / "run"}
    first = reported[0]
    assert (first.kafka.bootstrap_servers, first.kafka.topics) == ("one:9092,two:9092", ("orders", "payments"))
    assert (first.pipeline.jars, first.pipeline.conf) == (("/jars/a.jar",), {"spark.sql.shuffle.partitions": "4"})
    assert first.storage["path"] == str(tmp_path / "data" / "storage.sqlite")


def test_logs_and_sockets_have_the_workers_names_and_the_policy_is_the_configured_one(tmp_path: Path) -> None:
    loaded = config(tmp_path)

    assert [launch.log_path for launch in launches(loaded, [])] == [
        tmp_path / "logs" / f"worker-{n}.log" for n in range(3)
    ]
    assert launches(loaded, [])[1].socket_path == tmp_path / "run" / "worker-1.sock"
    restart = supervision_policy(loaded).restart
    assert (restart.backoff_min_seconds, restart.max_failures) == (2, 4)
