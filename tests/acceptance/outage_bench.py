"""Fleets whose parts can be taken away, for the tests of what every view shows."""

import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from selenium import webdriver

from tests.acceptance.fleets import START_SECONDS, Fleet
from tests.conftest import eventually
from tests.expressions import RULES_FILE
from tests.prometheus import Prometheus
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster, running_cluster
from tests.servers.redis_server import RedisServer, require_redis
from tests.verdict_views import Shown, Top, Views, await_shown

SECONDS = 10.0  # from an outage or its end until the views must show it
WORKERS = ("worker-0", "worker-1")
SLOW = "backoff_max_seconds = 20.0\nping_timeout_seconds = 120.0\nstable_seconds = 1.0"
"""A killed process stays away and a frozen one is not killed, until the test ends the outage."""
READ_TOKEN = "0123456789abcdef-read"
CODE = """\
import os, time


def transform(frame):
    return frame


def handle(messages):
    fault = os.environ.get("KCTL_TEST_HANDLER", "")
    while os.path.exists(fault + "-hangs"):
        time.sleep(0.1)
    if os.path.exists(fault + "-fails"):
        return [message.tries > 0 or message.offset % 5 > 0 for message in messages]
    refused = os.path.exists(fault + "-refuses") and ValueError("no such currency")
    return [refused or True if message.value.startswith(b"refused") else True for message in messages]
"""
FAR_CLOCK = """\
import os, time
real, place = time.time, os.environ["KCTL_TEST_CLOCK"]
time.time = lambda: real() + (3600.0 if os.path.exists(place) else 0.0)
"""


class Bench:
    def __init__(self, chromium: webdriver.Chrome, fleet: Fleet, parts: dict[str, Any]) -> None:
        self.fleet = fleet
        self.chromium = chromium
        self.parts = parts
        self._prometheus: Prometheus | None = None
        self._top: Top | None = None
        self._opened: str | None = None
        self.is_well = True

    def close(self) -> None:
        for part in (self._prometheus, self._top):
            if part is not None:
                part.close()
        self._prometheus = self._top = None

    def start(self) -> None:
        self.fleet.start()
        eventually(self.fleet.url, START_SECONDS, "the master answers")
        self.begin()
        self.fleet.send(200)

    def begin(self) -> None:
        self.open()
        self.await_well(START_SECONDS)
        self.is_well = False

    def open(self) -> None:
        url = self.fleet.url()
        assert url is not None
        self.chromium.execute_cdp_cmd("Network.enable", {})
        self.chromium.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": self.views.headers})
        self.chromium.get(url)
        if url != self._opened:
            self.close()
            self._opened = url
            token = READ_TOKEN if self.token.exists() else None
            [target] = re.findall("//([^/]+)", url)
            place = Path(tempfile.mkdtemp(dir=self.fleet.directory))  # in the old one the old target is down
            self._prometheus = Prometheus(place, [target], rules=RULES_FILE.read_text(), token=token)
            eventually(self._prometheus.has_scraped, what="the master is scraped")
            self._top = Top(self.fleet.config)

    @property
    def token(self) -> Path:
        return self.fleet.directory / "read-token"

    @property
    def views(self) -> Views:
        headers = {"authorization": f"Bearer {READ_TOKEN}"} if self.token.exists() else {}
        return Views(self.fleet.config, self.fleet.url(), headers, self.chromium, self._prometheus, self._top)

    def pids(self, *names: str) -> list[int]:
        rows = self.fleet.processes()
        return [rows[name]["pid"] for name in names]

    def start_again(self, *names: str) -> None:
        for name in names:
            self.fleet.kctl("start", name)
        self.await_states("running", *names)

    def await_states(self, state: str, *names: str) -> None:
        def states() -> list[str]:
            answer = json.loads(self.fleet.kctl("status", "-o", "json", exit_code=None).stdout)
            return [row["state"] for row in answer["rows"] if row["name"] in names]

        eventually(lambda: states() == [state] * len(names), START_SECONDS, f"{names} are {state}")

    def await_well(self, seconds: float = SECONDS) -> None:
        self.await_shown(lambda shown: all(each.level == "ok" for each in shown.values()), seconds, "all is well")
        self.is_well = True

    def await_shown(self, is_so: Callable[[dict[str, Shown]], bool], seconds: float, what: str) -> None:
        await_shown(self.views.shown, is_so, seconds, what)


def events(bench: Bench, after: int = -1) -> list[tuple[int, str]]:
    found: list[tuple[str, str]] = bench.chromium.execute_script(
        "return [...document.querySelectorAll('#events li')].map(each => [each.dataset.id || '', each.innerText])"
    )
    numbered = [(int(id_.rpartition("-")[2] or 0), text) for id_, text in found]
    return [each for each in numbered if each[0] > after]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """This module's fleets outlive the test that starts them."""


@pytest.fixture(scope="module")
def benches(chromium: webdriver.Chrome) -> Iterator[Callable[[str], Bench]]:
    made: dict[str, tuple[Bench, ExitStack]] = {}

    def end() -> None:
        chromium.get("about:blank")
        for bench, stack in made.values():
            print(bench.fleet.log_tail())
            stack.close()
        made.clear()

    def bench(kind: str) -> Bench:
        if kind not in made or not made[kind][0].is_well:
            end()
            stack = ExitStack()
            folder = Path(tempfile.mkdtemp(prefix="o", dir="/tmp"))
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
            made[kind] = Bench(chromium, *PARTS[kind](folder, stack)), stack
            stack.callback(made[kind][0].close)
            made[kind][0].start()
        return made[kind][0]

    yield bench
    end()


@pytest.fixture
def bench(request: pytest.FixtureRequest, benches: Callable[[str], Bench]) -> Bench:
    return benches(getattr(request, "param", "redis"))


Parts: TypeAlias = tuple[Fleet, dict[str, Any]]


def made_fleet(folder: Path, stack: ExitStack, on: KafkaBroker | KafkaCluster, **more: str) -> Fleet:
    """The fleet collects each half second. It asks for replicas in sync only every five seconds, so a lost broker is
    not missing among them at once."""
    (folder / "fleet").mkdir()
    more = {"workers_more": SLOW, "backoff": "20.0", **more}
    more["sinkers"] = f"{more.get('sinkers', '')}\n\n[collect]\ninterval_seconds = 0.5"
    fleet = Fleet(folder / "fleet", on, partitions=4, workers=2, beside=None, **more)
    stack.callback(fleet.close)
    return fleet


def with_redis(folder: Path, stack: ExitStack) -> Parts:
    """Adds a sinker, a token, and a movable clock for all of the fleet's Python."""
    require_redis()
    broker = stack.enter_context(KafkaBroker(folder / "broker"))
    redis = RedisServer(folder / "redis")
    redis.start()
    stack.callback(redis.kill)
    storage = f'mode = "redis"\nurl = "{redis.url}"'
    (code := folder / "user_code.py").write_text(CODE)
    storage += "\nlimit = 5000"
    sinkers = 'count = 1\nhandler = "user_code:handle"\nretry_backoff_seconds = 0.1'
    workers_more = f'{SLOW}\ntransform = "user_code:transform"'
    fleet = made_fleet(folder, stack, broker, storage=storage, sinkers=sinkers, workers_more=workers_more)
    (folder / "sitecustomize.py").write_text(FAR_CLOCK)
    (fleet.directory / "read-token").write_text(f"{READ_TOKEN}\n")
    (fleet.directory / "read-token").chmod(0o600)
    fleet.config.write_text(f'{fleet.config.read_text()}read_token_file = "read-token"\n')
    patch = stack.enter_context(pytest.MonkeyPatch.context())
    patch.setenv("PYTHONPATH", str(folder))
    patch.setenv("KCTL_TEST_CLOCK", str(folder / "moved"))
    patch.setenv("KCTL_TEST_HANDLER", str(folder / "handler"))
    return fleet, {
        "broker": broker,
        "redis": redis,
        "clock": folder / "moved",
        "code": code,
        "handler": folder / "handler",
    }


def with_cluster(_folder: Path, stack: ExitStack) -> Parts:
    cluster = stack.enter_context(running_cluster({"min.insync.replicas": "2"}))
    return made_fleet(_folder, stack, cluster), {"cluster": cluster}


def with_disk(folder: Path, stack: ExitStack) -> Parts:
    if os.geteuid() != 0:
        pytest.skip("mounts a file system: needs root")
    disk = folder / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "none", str(disk)]).returncode:
        pytest.skip("a file system cannot be mounted here")
    stack.callback(subprocess.run, ["umount", str(disk)], check=True)
    broker = stack.enter_context(KafkaBroker(folder / "broker"))
    storage = f'path = "{disk / "storage.sqlite"}"\nmin_free = "16m"'
    return made_fleet(folder, stack, broker, storage=storage), {"disk": disk}


def with_own_drivers(folder: Path, stack: ExitStack) -> Parts:
    broker = stack.enter_context(KafkaBroker(folder / "broker"))
    kafka = 'isolation_level = "read_committed"'
    return made_fleet(folder, stack, broker, engine="own", kafka=kafka), {"broker": broker}


PARTS: dict[str, Callable[[Path, ExitStack], Parts]] = {
    "redis": with_redis,
    "cluster": with_cluster,
    "disk": with_disk,
    "own": with_own_drivers,
}
