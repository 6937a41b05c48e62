"""Real fleets in the states that users meet, each with its own page; the workers are stand-ins without Spark."""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from kafka import KafkaProducer
from selenium import webdriver

from kctl.demo.run import Producer
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.file import FileStorage
from tests.conformance.given import fill
from tests.conftest import eventually
from tests.integration import sinker_handlers
from tests.integration.conftest import Master, write_config
from tests.integration.hosts import Fleet
from tests.integration.page_site import emulated
from tests.lake_tables import TOPIC_ID, TP, begun, opened
from tests.servers import topics
from tests.servers.kafka_broker import KafkaBroker

PARTITIONS = 16
HANDLER = sinker_handlers.__name__
BACKLOG, BACKLOG_SECONDS = 12_000, 7200.0  # messages of the fleet that catches up, and the age of the first one


@dataclass(frozen=True, slots=True)
class State:
    url: str
    level: str
    reason: str  # a regular expression for its beginning
    remedy: str
    headers: Mapping[str, str] = field(default_factory=dict)


EXPECTED: dict[str, tuple[str, str, str]] = {
    "well": ("ok", "everything is running; ", ""),
    "starting": ("unknown", "no worker has worked", ""),
    "catching-up": ("ok", ".*catching up: the oldest", ""),
    "handler-hangs": ("degraded", "the handler .* has not returned in 1 of 1 sinker", "kctl stack sinker-0"),
    "dead-letters": ("degraded", ".*ValueError", "`kctl (logs sinker-0|storage dead groups)`"),
    "stalled": ("failing", "1 of 16 partitions stalled", "kctl logs worker-"),
    "worker-failing": ("degraded", "1 of 2 workers has not worked", "kctl logs worker-1"),
    "storage-full": ("failing", "the storage has been full", "set sinkers.handler"),
    "lake": ("ok", "everything is running", ""),
    "host-missing": ("degraded", "host node-2 ", "kctl forget-host"),
}
"""Level, then regular expressions for the beginning of the reason and for the remedy."""
NAMES = tuple(EXPECTED)
HEIGHTS = {390: 844, 1440: 900}


class _Stage:
    def __init__(self, folder: Path, broker: KafkaBroker) -> None:
        self.folder, self.broker = folder, broker
        self.masters: dict[str, Master] = {}

    def close(self) -> None:
        for one in self.masters.values():
            one.kill()

    def topic(self, name: str, partitions: int = 4, each: int = 0) -> str:
        topics.create_topic(self.broker.bootstrap_servers, f"{name}.orders", partitions)
        if each:
            topics.produce(self.broker.bootstrap_servers, f"{name}.orders", dict.fromkeys(range(partitions), each))
        return f"{name}.orders"

    def home(self, name: str) -> Path:
        home = self.folder / name
        (home / "data").mkdir(parents=True, exist_ok=True)
        return home

    def storage(self, name: str, count: int) -> FileStorage:
        storage = FileStorage(self.home(name) / "data" / "storage.sqlite", block_messages=10)
        storage.prepare()
        fill(storage, count, topic=f"{name}.orders")
        return storage

    def start(self, name: str, *, reads: int = 500, conf: Mapping[str, str] | None = None, **sections: Any) -> Master:
        settings: dict[str, Mapping[str, object]] = {
            "fleet": {"name": "shop"},
            "kafka": {
                "bootstrap_servers": self.broker.bootstrap_servers,
                "group": name,
                "topics": [f"{name}.orders"],
                "session_timeout_seconds": 6.0,
            },
            "workers": {"count": 1, "engine": "own", "backoff_min_seconds": 300.0, "backoff_max_seconds": 300.0},
            "status": {"hold_seconds": 1.0},
            "http": {"port": 0},
            "spark": {"conf": {"KCTL_TEST_JOINS": "1", "KCTL_TEST_READS": str(reads), **(conf or {})}},
        }
        for section, values in sections.items():
            settings[section] = {**settings.get(section, {}), **values}
        self.masters[name] = Master(write_config(self.home(name) / "kctl.toml", settings))
        return self.masters[name]


def _backlog(stage: _Stage, name: str) -> None:
    topic, began = stage.topic(name), time.time() - BACKLOG_SECONDS
    producer = KafkaProducer(bootstrap_servers=stage.broker.bootstrap_servers)
    for number in range(BACKLOG):
        at = int((began + number * BACKLOG_SECONDS / BACKLOG) * 1000)
        producer.send(topic, b"x", partition=number % 4, timestamp_ms=at)
    producer.close()


def _table(path: Path) -> None:
    lake = opened(path)
    lake.init_offsets([StoredOffset(*TP, TOPIC_ID, 0)])
    for start in range(0, 1200, 400):
        begun(lake, start, start + 400).commit()


def _begin(stage: _Stage, name: str) -> None:
    sinkers = {"count": 1, "batch_size": 10, "lease_seconds": 3600.0}
    match name:
        case "well":
            stage.topic(name, PARTITIONS, 50)
            stage.start(name)
        case "starting":
            stage.topic(name, each=50)
            stage.start(name, status={"window_seconds": 3600.0}, conf={"KCTL_TEST_WORKER": "begins"})
        case "handler-hangs":
            stage.topic(name)
            stage.storage(name, 1700)
            stage.start(name, sinkers={**sinkers, "handler": f"{HANDLER}:waits_for_gate"})
        case "dead-letters":
            stage.topic(name)
            stage.storage(name, 1000)
            stage.start(name, sinkers={**sinkers, "handler": f"{HANDLER}:fifths_die", "max_tries": 1})
        case "stalled":
            stage.topic(name, PARTITIONS, 40)
            stage.start(name, status={"window_seconds": 2.0}, conf={"KCTL_TEST_SKIPPED": "11"})
        case "worker-failing":
            stage.topic(name, each=40)
            (stage.home(name) / "worker-1").touch()
            fails = {"KCTL_TEST_WORKER": "dies", "KCTL_TEST_FAULT_FILE": str(stage.home(name) / "NAME")}
            stage.start(name, workers={"count": 2}, conf=fails)
        case "storage-full":
            stage.topic(name, each=40)
            stage.storage(name, 500)
            stage.start(name, storage={"limit": 500})
        case "lake":
            stage.topic(name)
            table = stage.home(name) / "orders"
            _table(table)
            stage.start(name, storage={"mode": "lake", "uri": table.as_uri()})
        case "catching-up":
            _backlog(stage, name)
            stage.start(name, reads=2)


def _hosts(folder: Path, broker: KafkaBroker, stack: ExitStack) -> State:
    home = folder / "shop"
    home.mkdir()
    fleet = Fleet(home, broker)
    stack.callback(fleet.close)
    topics.create_topic(broker.bootstrap_servers, "hosts.orders", PARTITIONS)
    reads = {"KCTL_TEST_JOINS": "1", "KCTL_TEST_READS": "500"}
    kafka = {"session_timeout_seconds": 6.0, "topics": ["hosts.orders"], "group": "host-missing"}
    more: dict[str, Mapping[str, object]] = {"fleet": {"name": "shop"}, "spark": {"conf": reads}, "kafka": kafka}
    hosts = ("node-1", "node-2")
    for name in hosts:
        fleet.start(name, more=more)
    fleet.await_all(*hosts)
    frozen = psutil.Process(fleet.masters["node-2"].process.pid)
    for each in (frozen, *frozen.children(recursive=True)):
        stack.callback(_go_on, each)
        each.suspend()
    headers = {"authorization": f"Bearer {fleet.token.read_text().strip()}"}
    return State(str(fleet.masters["node-1"].about["http_url"]), *EXPECTED["host-missing"], headers)


def _go_on(process: psutil.Process) -> None:
    if process.is_running():
        process.resume()


@contextmanager
def states(folder: Path, broker: KafkaBroker, names: Sequence[str] = NAMES) -> Iterator[dict[str, State]]:
    """Yields the started fleets by state. Some need ten seconds to reach their state."""
    with ExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setenv("KCTL_TEST_LEDGER", str(folder / "ledger"))
        patched.setenv("KCTL_TEST_GATE", str(folder / "gate"))
        patched.setenv("XDG_RUNTIME_DIR", str(folder))
        patched.setenv("XDG_STATE_HOME", str(folder / "state"))
        os.mkfifo(folder / "gate")
        stage = _Stage(folder, broker)
        stack.callback(stage.close)
        for name in names:
            _begin(stage, name)
        if "well" in names:
            load = Producer(broker.bootstrap_servers, "well.orders", PARTITIONS, 400.0)
            load.start()
            stack.callback(load.stop)
        found = {"host-missing": _hosts(folder, broker, stack)} if "host-missing" in names else {}
        for name, one in stage.masters.items():
            eventually(one.is_announced, what=f"{name} is not announced")
            found[name] = State(str(one.about["http_url"]), *EXPECTED[name])
        yield {name: found[name] for name in names}


@contextmanager
def on_page(page: webdriver.Chrome, state: State, width: int) -> Iterator[None]:
    page.execute_cdp_cmd("Security.setIgnoreCertificateErrors", {"ignore": True})
    page.execute_cdp_cmd("Network.enable", {})
    page.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": dict(state.headers)})
    try:
        with emulated(page, width, HEIGHTS[width]):
            page.get(state.url)
            yield
            page.get("about:blank")
    finally:
        page.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": {}})
        page.execute_cdp_cmd("Security.setIgnoreCertificateErrors", {"ignore": False})


def seen(page: webdriver.Chrome, state: State, script: str) -> Any:
    """The script's result while the page shows this state. One script reads both, because the state may change."""
    last: list[Any] = []
    shown = "['status', 'reason', 'link'].map(id => document.getElementById(id).textContent)"

    def found() -> bool:
        last[:] = page.execute_script(f"const shown = {shown}; return [...shown, (() => {{{script}}})()]")
        return last[0] == state.level and re.match(state.reason, last[1]) is not None and last[2] == "live"

    try:
        eventually(found, 90, f"{state.level}: {state.reason}")
    except AssertionError as error:
        error.add_note(f"shown last: {last[:3]}")
        raise
    return last[3]
