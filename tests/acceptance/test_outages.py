"""Outages of every part of a fleet: ten seconds after each begins or ends all views show one verdict and reason."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import psutil
import pytest
from selenium import webdriver

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import quorum_leader
from tests.acceptance.fleets import START_SECONDS, Fleet
from tests.browser import browser_of_a_session
from tests.clusters import running_cluster
from tests.conftest import eventually
from tests.expressions import RULES_FILE
from tests.processes import stopped
from tests.prometheus import Prometheus
from tests.redis_server import require_redis
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.redis_server import RedisServer
from tests.verdict_views import Shown, Views, agree, are_silent

pytestmark = [pytest.mark.real, pytest.mark.long, pytest.mark.alone, pytest.mark.timeout(300)]

SECONDS = 10.0
"""After an outage, and after its end."""
WORKERS = ("worker-0", "worker-1")
SLOW = "backoff_max_seconds = 20.0\nping_timeout_seconds = 120.0\nstable_seconds = 1.0"
"""What is killed stays away, what is frozen is not killed: the outage lasts until the test ends it."""
READ_TOKEN = "0123456789abcdef-read"
CODE = """\
import os, time


def transform(frame):
    return frame


def handle(messages):
    fault = os.environ.get("KCTL_TEST_HANDLER", "")
    while os.path.exists(fault + "-hangs"):
        time.sleep(0.1)
    fails = os.path.exists(fault + "-fails")
    return [not fails or message.tries > 0 or message.offset % 5 > 0 for message in messages]
"""
FAR_CLOCK = """\
import os, time
real, place = time.time, os.environ["KCTL_TEST_CLOCK"]
time.time = lambda: real() + (3600.0 if os.path.exists(place) else 0.0)
"""


class Bench:
    """A fleet whose parts can be taken away, and its views."""

    def __init__(self, chromium: webdriver.Chrome, fleet: Fleet, parts: dict[str, Any]) -> None:
        self.fleet = fleet
        self.chromium = chromium
        self.parts = parts
        self._prometheus: Prometheus | None = None
        self._scraped: str | None = None
        self.is_well = True

    def close(self) -> None:
        if self._prometheus is not None:
            self._prometheus.close()
            self._prometheus = None

    def start(self) -> None:
        self.fleet.start()
        eventually(self.fleet.url, START_SECONDS, "the master answers")
        self.begin()
        self.fleet.send(200)

    def begin(self) -> None:
        """Whatever the test before has left."""
        self.open()
        self.await_well(START_SECONDS)
        self.is_well = False

    def open(self) -> None:
        url = self.fleet.url()
        assert url is not None
        self.chromium.execute_cdp_cmd("Network.enable", {})
        self.chromium.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": self.views.headers})
        self.chromium.get(url)
        if url != self._scraped:
            self.close()
            self._scraped = url
            token = READ_TOKEN if self.token.exists() else None
            [target] = re.findall("//([^/]+)", url)
            place = Path(tempfile.mkdtemp(dir=self.fleet.directory))  # in the old one the old target is down
            self._prometheus = Prometheus(place, [target], rules=RULES_FILE.read_text(), token=token)

    @property
    def token(self) -> Path:
        return self.fleet.directory / "read-token"

    @property
    def views(self) -> Views:
        headers = {"authorization": f"Bearer {READ_TOKEN}"} if self.token.exists() else {}
        return Views(self.fleet.config, str(self.fleet.url()), self.chromium, headers, self._prometheus)

    def pids(self, *names: str) -> list[int]:
        rows = self.fleet.processes()
        return [rows[name]["pid"] for name in names]

    def start_again(self, *names: str) -> None:
        for name in names:
            self.fleet.kctl("start", name)
        self.await_states("running", *names)

    def await_states(self, state: str, *names: str) -> None:
        """As the supervisor sees them."""

        def states() -> list[str]:
            answer = json.loads(self.fleet.kctl("status", "-o", "json", exit_code=None).stdout)
            return [row["state"] for row in answer["rows"] if row["name"] in names]

        eventually(lambda: states() == [state] * len(names), START_SECONDS, f"{names} are {state}")

    def await_well(self, seconds: float = SECONDS) -> None:
        self.await_shown(lambda shown: all(each.level == "ok" for each in shown.values()), seconds, "all is well")
        self.is_well = True

    def await_shown(self, is_so: Callable[[dict[str, Shown]], bool], seconds: float, what: str) -> None:
        self.views.await_shown(is_so, seconds, what)


Outage: TypeAlias = Callable[[Bench], Any]


@contextmanager
def broker_killed(bench: Bench) -> Iterator[None]:
    broker: KafkaBroker = bench.parts["broker"]
    broker.kill()
    yield
    broker.restart()


def broker_frozen(bench: Bench) -> Any:
    return stopped([bench.parts["broker"].pid])


@contextmanager
def one_of_three(bench: Bench) -> Iterator[None]:
    with without(bench, 2):
        yield


@contextmanager
def controller(bench: Bench) -> Iterator[None]:
    with ClusterConnection(plain(bench.parts["cluster"].bootstrap_servers), 30) as connection:
        connection.open()
        node = quorum_leader(connection)
    assert node is not None
    with without(bench, node):
        yield


@contextmanager
def without(bench: Bench, node: int) -> Iterator[None]:
    cluster: KafkaCluster = bench.parts["cluster"]
    cluster.brokers[node].kill()
    yield
    cluster.start()


@contextmanager
def redis_killed(bench: Bench) -> Iterator[None]:
    bench.parts["redis"].kill()
    yield
    bench.parts["redis"].start()


def redis_frozen(bench: Bench) -> Any:
    return bench.parts["redis"].frozen()


@contextmanager
def redis_full(bench: Bench) -> Iterator[None]:
    with bench.parts["redis"].client() as client:
        client.config_set("maxmemory", "1mb")
        yield
        client.config_set("maxmemory", "0")


@contextmanager
def disk_full(bench: Bench) -> Iterator[None]:
    filler = bench.parts["disk"] / "filler"
    with filler.open("wb") as file:
        free = os.statvfs(bench.parts["disk"])
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - (1 << 20))
    yield
    filler.unlink()


@contextmanager
def engine_killed(bench: Bench) -> Iterator[None]:
    os.kill(bench.pids("engine")[0], signal.SIGKILL)
    yield
    eventually(lambda: bench.fleet.engine().get("state") == "running", START_SECONDS, "the engine is back")


def engine_frozen(bench: Bench) -> Any:
    return stopped(bench.pids("engine"))


def jvm_frozen(bench: Bench) -> Any:
    return stopped([bench.fleet.jvm().pid])


def workers_frozen(bench: Bench) -> Any:
    return stopped(bench.pids(*WORKERS))


def one_worker_frozen(bench: Bench) -> Any:
    return stopped(bench.pids("worker-1"))


@contextmanager
def workers_fatal(bench: Bench) -> Iterator[None]:
    with fatal(bench, *WORKERS):
        yield


@contextmanager
def one_worker_fatal(bench: Bench) -> Iterator[None]:
    with fatal(bench, "worker-0"):
        yield


@contextmanager
def sinkers_dead(bench: Bench) -> Iterator[None]:
    with killed(bench, "sinker-0"):
        yield


@contextmanager
def workers_killed(bench: Bench) -> Iterator[None]:
    with killed(bench, *WORKERS):
        yield


@contextmanager
def killed(bench: Bench, *names: str) -> Iterator[None]:
    for pid in bench.pids(*names):
        os.kill(pid, signal.SIGKILL)
    yield
    bench.start_again(*names)


@contextmanager
def fatal(bench: Bench, *names: str) -> Iterator[None]:
    """Started again with a transform and a handler that cannot be imported."""
    bench.parts["code"].write_text("def transform(")
    bench.fleet.kctl("restart", *names, exit_code=None)
    bench.await_states("fatal", *names)
    yield
    bench.parts["code"].write_text(CODE)
    bench.start_again(*names)


@contextmanager
def one_worker_hung(bench: Bench) -> Iterator[None]:
    """Its main thread waits for a JVM that is its own."""
    [pid] = bench.pids("worker-1")
    [jvm] = [child for child in psutil.Process(pid).children(recursive=True) if child.name() == "java"]
    with stopped([jvm.pid]):
        yield


@contextmanager
def clock_moved(bench: Bench) -> Iterator[None]:
    place: Path = bench.parts["clock"]
    place.touch()
    yield
    place.unlink()


@contextmanager
def handler_hangs(bench: Bench) -> Iterator[None]:
    """The outage begins when the call has run for longer than a call may."""
    place: Path = bench.parts["handler"].with_name("handler-hangs")
    place.touch()
    bench.fleet.send(1700)
    eventually(lambda: (of_sinker(bench)["call_seconds"] or 0.0) > 10.0, 30, "the call hangs")
    yield
    place.unlink()


@contextmanager
def handler_fails_a_fifth(bench: Bench) -> Iterator[None]:
    """The outage is over when no try of the last minute has failed."""
    place: Path = bench.parts["handler"].with_name("handler-fails")
    place.touch()
    bench.fleet.send(1000)
    yield
    place.unlink()
    eventually(lambda: of_sinker(bench)["recent_failures"] == 0, 90, "the last failures are a minute ago")


def of_sinker(bench: Bench) -> dict[str, Any]:
    rows = json.loads(bench.fleet.kctl("rpc", "workers", "-o", "json", exit_code=None).stdout)["rows"]
    return next(row["sinker"] for row in rows if row["name"] == "sinker-0")


NO_BROKER, NO_STORAGE, NO_WORKER = (
    "no Kafka broker has answered$",
    "the storage has not answered",
    "no worker has worked",
)
LACKING = r"(the Kafka brokers have not answered everything|\d of \d partitions (has|have) lacked in-sync replicas)"
OUTAGES: list[tuple[str, Outage, str, str]] = [
    ("redis", broker_killed, "failing", NO_BROKER),
    ("redis", broker_frozen, "failing", NO_BROKER),
    ("cluster", one_of_three, "degraded", LACKING),
    ("cluster", controller, "degraded", LACKING),
    ("redis", redis_killed, "failing", NO_STORAGE),
    ("redis", redis_frozen, "failing", NO_STORAGE),
    ("redis", redis_full, "failing", "the storage has been full"),
    ("disk", disk_full, "failing", "the storage has been full"),
    ("redis", engine_killed, "failing", "the engine has not run"),
    ("redis", engine_frozen, "failing", "the engine has not run"),
    ("redis", jvm_frozen, "failing", "the engine has not run"),
    ("redis", workers_frozen, "failing", NO_WORKER),
    ("redis", one_worker_frozen, "degraded", "1 of 2 workers has not worked"),
    ("redis", workers_fatal, "failing", NO_WORKER),
    ("redis", one_worker_fatal, "degraded", "1 of 2 workers has not worked"),
    ("redis", workers_killed, "failing", NO_WORKER),
    ("redis", sinkers_dead, "failing", "no sinker has worked"),
    ("own", one_worker_hung, "degraded", "1 of 2 workers has not worked"),
    ("redis", handler_hangs, "degraded", "the handler user_code:handle has not returned in 1 of 1 sinker$"),
    ("redis", handler_fails_a_fifth, "degraded", "the handler user_code:handle has failed too often$"),
    ("redis", clock_moved, "ok", "everything is running"),
]


@pytest.mark.parametrize(
    ("bench", "outage", "level", "what"),
    [pytest.param(*each, id=each[1].__name__) for each in OUTAGES],
    indirect=["bench"],
)
def test_each_outage_is_one_verdict_in_every_view_and_its_end_too(
    bench: Bench, outage: Outage, level: str, what: str
) -> None:
    bench.begin()

    last = max((number for number, _ in events(bench)), default=0)
    with outage(bench):
        begun = time.monotonic()
        bench.await_shown(lambda shown: agree(shown, level, what), SECONDS, f"{level}: {what}")
        print(f"{outage.__name__}: shown after {time.monotonic() - begun:.1f} s")
    ended = time.monotonic()
    bench.await_well()
    print(f"{outage.__name__}: well {time.monotonic() - ended:.1f} s after its end")

    if level != "ok":
        texts = [text for _, text in events(bench, last)]
        assert any(re.search(f"(->|still) {level}: .*{what.rstrip('$')}", text) for text in texts), texts
        assert any("-> ok: " in text for text in texts), texts


def events(bench: Bench, after: int = -1) -> list[tuple[int, str]]:
    """Number and text of those on the page, the newest first."""
    found: list[tuple[str, str]] = bench.chromium.execute_script(
        "return [...document.querySelectorAll('#events li')].map(each => [each.dataset.id || '', each.innerText])"
    )
    numbered = [(int(id_.rpartition("-")[2] or 0), text) for id_, text in found]
    return [each for each in numbered if each[0] > after]


def test_a_master_that_is_frozen_or_gone_is_no_fleet_that_is_well(bench: Bench) -> None:
    bench.begin()
    pid = bench.fleet.pid
    assert pid is not None

    with stopped([pid]):
        bench.await_shown(lambda shown: are_silent(shown, 1), SECONDS, "the frozen master is shown")
    bench.await_well()
    bench.fleet.kill()
    bench.await_shown(lambda shown: are_silent(shown, 5), SECONDS, "the killed master is shown")
    bench.fleet.start()
    seen: list[dict[str, Shown]] = []

    eventually(lambda: bench.views.readyz().code, START_SECONDS, "the next master answers")
    bench.open()

    def is_well(shown: dict[str, Shown]) -> bool:
        seen.append(shown)
        return all(each.level == "ok" for each in shown.values())

    bench.await_shown(is_well, START_SECONDS, "the next master has all well")
    assert bench.fleet.is_running(*WORKERS)
    levels = {name: each.level for name, each in seen[0].items() if name != "alerts"}
    assert set(levels.values()) == {"unknown"}, f"its workers have just begun: {levels}"


def test_a_worker_that_was_just_restarted_is_shown_until_it_works(bench: Bench) -> None:
    bench.begin()

    bench.fleet.kctl("restart", "worker-0")

    bench.begin()
    texts = "\n".join(text for _, text in events(bench))
    assert "degraded: 1 of 2 workers has not worked" in texts


@pytest.mark.shows("the restart of the only sinker, or of the engine, is `degraded`, named, and never `failing`")
@pytest.mark.parametrize("name", ["sinker-0", "engine"])
def test_a_restart_on_request_is_never_failing(bench: Bench, name: str) -> None:
    bench.begin()
    last = max((number for number, _ in events(bench)), default=0)

    bench.fleet.kctl("restart", name)

    bench.begin()
    texts = "\n".join(text for _, text in events(bench, last))
    assert f"{name} is restarting on request" in texts
    assert "failing" not in texts


def test_a_page_whose_token_is_no_longer_right_shows_nothing_as_well(bench: Bench) -> None:
    bench.begin()
    token = bench.token
    token.write_text("0123456789abcdef-other\n")
    try:
        bench.fleet.kctl("reload")
        bench.await_shown(
            lambda shown: (
                (shown["page"].level, shown["page"].what, shown["status"].level) == ("unknown", "no data", "ok")
            ),
            SECONDS,
            "the page has no data, and the command line needs no token",
        )
    finally:
        token.write_text(f"{READ_TOKEN}\n")
        bench.fleet.kctl("reload")
        bench.open()
    bench.await_well()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """The parts of this module's fleets end with it, whichever test has started them."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[webdriver.Chrome]:
    with browser_of_a_session() as driver:
        yield driver


@pytest.fixture(scope="module")
def benches(chromium: webdriver.Chrome) -> Iterator[Callable[[str], Bench]]:
    """One fleet at a time: that of the next kind ends the one before."""
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
    """Of a fleet that is collected each half second: replicas in sync are asked for after five seconds, and are not at
    once what brokers say of one that has gone."""
    (folder / "fleet").mkdir()
    more = {"workers_more": SLOW, "backoff": "12.0", **more}
    more["sinkers"] = f"{more.get('sinkers', '')}\n\n[collect]\ninterval_seconds = 0.5"
    fleet = Fleet(folder / "fleet", on, partitions=4, workers=2, beside=None, **more)
    stack.callback(fleet.close)
    return fleet


def with_redis(folder: Path, stack: ExitStack) -> Parts:
    """And a sinker, a token, and a clock that can be moved for all of the fleet's Python."""
    require_redis()
    broker = stack.enter_context(KafkaBroker(folder / "broker"))
    redis = RedisServer(folder / "redis")
    redis.start()
    stack.callback(redis.kill)
    storage = f'mode = "redis"\nurl = "{redis.url}"'
    (code := folder / "user_code.py").write_text(CODE)
    sinkers, workers_more = 'count = 1\nhandler = "user_code:handle"', f'{SLOW}\ntransform = "user_code:transform"'
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
    return made_fleet(folder, stack, broker, engine="own"), {}


PARTS: dict[str, Callable[[Path, ExitStack], Parts]] = {
    "redis": with_redis,
    "cluster": with_cluster,
    "disk": with_disk,
    "own": with_own_drivers,
}
