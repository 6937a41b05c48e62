"""One real broker, emptied for each module, and masters as processes."""

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from kafka import KafkaAdminClient
from kafka.errors import CoordinatorLoadInProgressError

from kctl.rpc.client import Reply, call
from kctl_agent.rpc.messages import Request, Role, reducer_method, wire_method
from tests.command_lines import Kctl, run_here, run_process
from tests.conftest import OUTLIVING, eventually
from tests.preloaded import Forked, preloaded
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker, running_broker

ROOT = Path(__file__).parents[2]
TOPIC = "orders"
PARTITIONS = 4
LONGEST = (  # the longest files begin first, so that the last one does not run alone
    *("test_hosts.py", "test_least_privilege.py", "test_page_signed_in.py", "test_lake_s3.py", "test_checkpoint.py"),
    *("test_page_operations.py", "test_kafka_cluster.py", "test_operations.py", "test_unhealthy_workers.py"),
    *("test_watched_checkpoints.py", "test_kafka_commands.py", "test_exporter.py", "test_exporter_kinds.py"),
    *("test_callbacks.py", "test_exporter_in_prometheus.py", "test_page_charts.py", "test_storage_migrate.py"),
    *("test_kafka_errors.py", "test_membership.py", "test_page.py", "test_refused_start.py", "test_advice.py"),
    *("test_hosts_verdict.py", "test_hosts_random_operations.py", "test_expressions.py", "test_schema_registry.py"),
    *("test_dead_letters_sent.py", "test_sinker.py", "test_master.py"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: [*LONGEST, item.path.name].index(item.path.name))


@pytest.fixture
def collected_here() -> Iterator[None]:
    """Collects what kafka-python left unclosed here, where it is expected, not in a later test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def one_broker() -> Iterator[KafkaBroker]:
    with running_broker() as running:
        yield running


@pytest.fixture(scope="module")
def broker(one_broker: KafkaBroker) -> KafkaBroker:
    """Do not stop it: other modules use it."""
    with KafkaAdminClient(bootstrap_servers=one_broker.bootstrap_servers) as admin:
        [groups] = eventually(lambda: groups_of(admin), what="the groups are listed")
        admin.delete_groups(groups)
        left = [name for name in admin.list_topics() if not name.startswith("__")]
        if left:
            admin.delete_topics(left)
        eventually(lambda: not set(left) & set(admin.list_topics()), what="the topics are gone")
    topics.create_topic(one_broker.bootstrap_servers, TOPIC, PARTITIONS)
    return one_broker


@pytest.fixture
def kctl(broker: KafkaBroker, capfd: pytest.CaptureFixture[str]) -> Kctl:
    return lambda command, *words: run_here(capfd, "kafka", command, "-b", broker.bootstrap_servers, *words)


def groups_of(admin: KafkaAdminClient) -> list[list[str]]:
    """Returns no groups while the coordinator loads, as after its first group."""
    try:
        return [[group["group_id"] for group in admin.list_groups()]]
    except CoordinatorLoadInProgressError:
        return []


ANSWER_SECONDS = 30.0  # beyond a request's deadline, because a busy machine schedules a master late


class Master:
    def __init__(self, config: Path, prefix: Sequence[str] = ()) -> None:
        self.config = config
        self.run_dir = config.parent / "run"
        self.log = config.parent / "master.log"
        self.process: Forked | subprocess.Popen[bytes]
        if not prefix:
            self.process = preloaded("tests.integration.master_process").start("run_master", self.log, str(config))
            return
        command = [*prefix, sys.executable, "-m", "tests.integration.master_process", str(config)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True)

    @property
    def about(self) -> dict[str, Any]:
        about: dict[str, Any] = json.loads((self.run_dir / "master.json").read_text())
        return about

    def ask(self, rpc: str, *, timeout_seconds: float = 10.0, of_master: bool = False, **params: Any) -> Reply:
        method = wire_method(rpc) if of_master else reducer_method(rpc)
        request = Request(Role.EXTERNAL, rpc, method, params=params, deadline_ms=int(timeout_seconds * 1000))
        return call(self.run_dir / "master.sock", request, timeout_seconds + ANSWER_SECONDS)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.about["http_url"] + path, timeout=60) as response:
            return str(response.read(), "utf-8")

    def ended(self, begun: Mapping[str, Any]) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            reported: dict[str, Any] = self.ask("operation", of_master=True, id=begun["id"]).result
            return reported if reported["state"] != "running" else None

        return eventually(found, what=f"{begun} has not ended") or {}

    def status(self) -> dict[str, dict[str, Any]]:
        rows = self.ask("status", of_master=True).result["rows"]
        return {row["name"]: row for row in rows}

    def states(self) -> list[str]:
        return [row["state"] for row in self.status().values()]

    def is_announced(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return bool(self.about["pid"] == self.process.pid)
        except FileNotFoundError:  # a master that starts removes the file of a killed one
            return False

    def kctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_process("-c", str(self.config), *words)

    def kill(self) -> None:
        # Kills all that it has started, also if it is frozen.
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGCONT)
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGABRT)  # the stacks of its threads go to its log
            self.process.wait()
            raise AssertionError(f"it does not end: {self.log.read_text()}") from None


@pytest.fixture
def config_file(short_dir: Path, broker: KafkaBroker) -> Callable[..., Path]:
    return partial(config_in, short_dir, broker)


def config_in(folder: Path, broker: KafkaBroker, **sections: dict[str, object]) -> Path:
    """Writes `kctl.toml` for the broker. Pass a section as `workers={"count": 2}`."""
    settings: dict[str, dict[str, object]] = {
        "kafka": {"bootstrap_servers": broker.bootstrap_servers, "group": folder.name, "topics": [TOPIC]},
        # Stand-ins for Spark need no engine.
        "workers": {"count": 2, "engine": "own", "backoff_min_seconds": 0.2, "backoff_max_seconds": 1.0},
        "collect": {"interval_seconds": 0.2},
        "http": {"port": 0},
    }
    for section, values in sections.items():
        settings.setdefault(section, {}).update(values)
    return write_config(folder / "kctl.toml", settings)


@pytest.fixture
def master(config_file: Callable[..., Path]) -> Iterator[Callable[..., Master]]:
    started: list[Master] = []

    def start(until: str = "running", **sections: dict[str, object]) -> Master:
        one = Master(config_file(**sections))
        started.append(one)
        eventually(one.is_announced, what="the master is not announced")
        eventually(lambda: set(one.states()) <= {until}, what=f"not all workers are {until}")
        return one

    yield start
    for one in started:
        one.kill()


@contextmanager
def shared_master(broker: KafkaBroker, token: str = "", **sections: dict[str, object]) -> Iterator[Master]:
    """For tests that leave its workers running. `token` allows operations over HTTP."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as folder, pytest.MonkeyPatch.context() as surroundings:
        surroundings.setenv("XDG_RUNTIME_DIR", folder)
        surroundings.setenv("XDG_STATE_HOME", folder)
        if token:
            write_secret(Path(folder, "token"), token)
            sections["http"] = {"token_file": "token"}
        one = Master(config_in(Path(folder), broker, **sections))
        OUTLIVING.add(one.process.pid)
        eventually(one.is_announced, what="the master is not announced")
        eventually(lambda: set(one.states()) == {"running"}, what="not all workers are running")
        yield one
        assert one.stop() == 0


def write_config(path: Path, settings: Mapping[str, object]) -> Path:
    path.write_text(tomli_w.dumps(settings))
    return path


def write_secret(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path
