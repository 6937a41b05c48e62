"""Three hosts with a worker each, one of which can be put into trouble, and what every view of every host shows."""

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import psutil
from selenium import webdriver

from tests.acceptance.fleets import START_SECONDS, Fleet
from tests.acceptance.outage_bench import READ_TOKEN, SECONDS
from tests.conftest import eventually
from tests.expressions import RULES_FILE
from tests.processes import alive
from tests.prometheus import Prometheus
from tests.servers.kafka_broker import KafkaBroker
from tests.verdict_views import Shown, Top, Views, await_shown, pattern

HOSTS = ("a", "b", "c")
WINDOW_SECONDS = 20.0  # after this time, unexplained silence of a partition is `stalled`
LIMIT = 4000
OF_LAG = {"KctlTimeLagOverObjective", "KctlConsumerLagGrowing", "KctlOldestUnhandled"}
HOLD = "KCTL_TEST_HOLD"
CODE = f"""\
import os, time

place = os.environ["{HOLD}"]
if os.path.exists(place + "-broken"):
    raise ImportError("it is broken")


def transform(frame):

    def hold(batches):
        for batch in batches:
            while os.path.exists(place):
                time.sleep(0.05)
            yield batch

    return frame.mapInArrow(hold, frame.schema)
"""
HTTP = """\
read_token_file = "{folder}/read-token"

[hosts]
name = "{name}"
url = "http://127.0.0.1"
allow_plain = true
token_file = "{folder}/read-token"
local_storage = true

[status]
window_seconds = {window}
"""
AllShown: TypeAlias = dict[str, dict[str, Shown]]


class HostsBench:
    """Each host has its own storage, so that a single one can be full."""

    def __init__(self, folder: Path, chromium: webdriver.Chrome, stack: ExitStack) -> None:
        self._folder, self._chromium, self._stack = folder, chromium, stack
        self._tops: dict[str, tuple[str, Top]] = {}
        self._prometheus: tuple[list[str], Prometheus] | None = None
        stack.callback(self._end)
        (token := folder / "read-token").touch(0o600)
        token.write_text(f"{READ_TOKEN}\n")
        (folder / "user_code.py").write_text(CODE)
        broker = stack.enter_context(KafkaBroker(folder / "broker"))
        self.fleets: dict[str, Fleet] = {}
        for name in HOSTS:
            (home := folder / name).mkdir()
            more: dict[str, Any] = {
                "http": HTTP.format(folder=folder, name=name, window=WINDOW_SECONDS),
                "storage": f'limit = {LIMIT}\non_other_storage = "take_over"',
                "workers_more": 'transform = "user_code:transform"\nping_timeout_seconds = 120.0',
                "engine": "own",
                "beside": self.fleets.get("a"),
            }
            self.fleets[name] = Fleet(home, broker, partitions=6, workers=1, **more)
            stack.callback(self.fleets[name].close)

    def start(self, *names: str) -> None:
        for name in names or HOSTS:
            os.environ[HOLD] = str(self.hold(name))
            os.environ["PYTHONPATH"] = str(self._folder)
            self.fleets[name].start()
            del os.environ[HOLD], os.environ["PYTHONPATH"]
        for name in names or HOSTS:
            eventually(self.fleets[name].url, START_SECONDS, f"{name} answers")

    def begin(self) -> None:
        eventually(self.is_whole, START_SECONDS, "each host has partitions")
        self.open()
        self.await_well(START_SECONDS)

    def is_whole(self) -> bool:
        return self.fleets["c"].owners() == {f"{name}/worker-0" for name in HOSTS}

    def await_well(self, seconds: float = SECONDS) -> None:
        await_shown(self.flat, lambda shown: all(each.level == "ok" for each in shown.values()), seconds, "all is well")

    def upgrade(self, name: str) -> None:
        """Three hosts are upgraded, one after another."""
        assert self.fleets[name].stop() == 0
        self.start(name)
        eventually(
            lambda: self.fleets[name].is_running(f"{name}/worker-0"), START_SECONDS, f"the worker of {name} runs"
        )

    def pending(self) -> set[str]:
        return self.views(HOSTS[-1]).pending() - OF_LAG

    def open(self) -> None:
        urls = {name: str(fleet.url()) for name, fleet in self.fleets.items()}
        for name, url in urls.items():
            if self._tops.get(name, ("",))[0] != url:
                if name in self._tops:
                    self._tops[name][1].close()
                self._tops[name] = url, Top(self.fleets[name].config, 2.0)
        targets = [url.removeprefix("http://") for url in urls.values()]
        if self._prometheus is None or self._prometheus[0] != targets:
            if self._prometheus is not None:
                self._prometheus[1].close()
            place = Path(tempfile.mkdtemp(dir=self._folder))
            rules = RULES_FILE.read_text()
            self._prometheus = targets, Prometheus(place, targets, rules=rules, token=READ_TOKEN)
            eventually(self._prometheus[1].has_scraped, what="all masters are scraped")
        self._chromium.execute_cdp_cmd("Network.enable", {})
        self._chromium.execute_cdp_cmd("Network.setExtraHTTPHeaders", {"headers": self.views("c").headers})
        self._chromium.get(urls["c"])

    def hold(self, name: str) -> Path:
        """While this file exists, no batch of the host ends."""
        return self._folder / f"{name}-holds"

    def views(self, name: str) -> Views:
        """Page and alerts are those of host c, whose alerts cover all hosts."""
        fleet, top = self.fleets[name], self._tops.get(name)
        is_last = name == HOSTS[-1]
        return Views(
            fleet.config,
            fleet.url(),
            {"authorization": f"Bearer {READ_TOKEN}"},
            self._chromium if is_last else None,
            self._prometheus[1] if is_last and self._prometheus else None,
            top[1] if top else None,
            timeout_seconds=5.0,  # it asks the other hosts, and one may be silent
        )

    def shown(self) -> AllShown:
        with ThreadPoolExecutor(len(HOSTS)) as pool:
            return dict(zip(HOSTS, pool.map(lambda name: self.views(name).shown(), HOSTS), strict=True))

    def flat(self) -> dict[str, Shown]:
        return {f"{host}'s {view}": each for host, shown in self.shown().items() for view, each in shown.items()}

    def partitions(self, name: str) -> list[int]:
        rows = self.fleets["c"].offsets()
        return [partition for partition, row in rows.items() if row["worker"] == f"{name}/worker-0"]

    def row(self, name: str) -> dict[str, Any]:
        return self.fleets[name].workers()[f"{name}/worker-0"]

    def family(self, name: str) -> list[psutil.Process]:
        master = psutil.Process(self.fleets[name].pid)
        return alive([master, *master.children(recursive=True)])

    def _end(self) -> None:
        for _, top in self._tops.values():
            top.close()
        if self._prometheus is not None:
            self._prometheus[1].close()


def of_all_hosts(folder_prefix: str, chromium: webdriver.Chrome) -> Iterator[HostsBench]:
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix=folder_prefix, dir="/tmp"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        bench = HostsBench(folder, chromium, stack)
        stack.callback(lambda: print(*(fleet.log_tail() for fleet in bench.fleets.values()), sep="\n"))
        bench.start()
        bench.begin()
        yield bench
        chromium.get("about:blank")


@contextmanager
def paused(bench: HostsBench) -> Iterator[None]:
    """The worker of one of three hosts is paused."""
    bench.fleets["a"].kctl("pause", "--all")
    try:
        bench.fleets["a"].send(60)
        yield
    finally:
        bench.fleets["a"].kctl("resume", "--all")


@contextmanager
def throttled(bench: HostsBench) -> Iterator[None]:
    """The storage of one of three hosts is full."""
    try:
        bench.fleets["a"].send_to(*bench.partitions("a"), count=LIMIT)
        bench.fleets["a"].send(60)
        eventually(lambda: bench.row("a")["state"] == "throttled", what="it is full")
        yield
    finally:
        bench.fleets["a"].kctl("storage", "clear", "--yes")


@contextmanager
def long_batch(bench: HostsBench) -> Iterator[None]:
    """The worker of one of three hosts runs a batch that is much longer than the batch before.

    The problem begins when the batch takes longer than [normal](status.md#what-is-measured).
    """
    bench.hold("a").touch()
    try:
        bench.fleets["a"].send(60)
        eventually(lambda: (bench.row("a")["batch_running_seconds"] or 0) > WINDOW_SECONDS, what="its batch is long")
        yield
    finally:
        bench.hold("a").unlink()


@contextmanager
def frozen(bench: HostsBench) -> Iterator[None]:
    """One of three hosts is frozen, with all its processes.

    The problem is over when each host has partitions again.
    """
    family = bench.family("a")
    for each in family:
        each.suspend()
    try:
        yield
    finally:
        for each in family:
            each.resume()


@contextmanager
def worker_down(bench: HostsBench) -> Iterator[None]:
    """The only worker of one of three hosts dies and cannot start again."""
    fleet, broken = bench.fleets["a"], bench.hold("a").with_name("a-holds-broken")
    broken.touch()
    try:
        os.kill(bench.row("a")["pid"], signal.SIGKILL)
        yield
    finally:
        broken.unlink()
        fleet.kctl("start", "worker-0")


class HostProblem(NamedTuple):
    """A problem of host a, and what every view of the answering hosts must show."""

    outage: Callable[[HostsBench], Any]
    level: str
    whats: tuple[str, ...]
    answering: tuple[str, ...] = HOSTS
    unready: tuple[str, ...] = ()  # the problem is their own work: their `/readyz` is 503
    alerts: frozenset[str] = frozenset()  # all that may be pending, except those of lag

    @property
    def seconds(self) -> float:
        return 2 * WINDOW_SECONDS if self.level == "ok" else SECONDS  # a harmless state must last longer than silence

    def are_pending(self, alerts: set[str]) -> bool:
        assert alerts <= self.alerts, alerts - self.alerts
        return alerts >= self.alerts - {"KctlStorageNearLimit"}

    def blamed(self, shown: AllShown) -> list[Shown]:
        if self.level == "failing":
            return []
        return [
            each
            for host in self.answering
            for view, each in shown[host].items()
            if each.level == "failing" and (view in VIEWS_OF_ALL or host not in self.unready)
        ]

    def is_shown(self, shown: AllShown) -> bool:
        fleet = [each for host in self.answering for view, each in shown[host].items() if view in VIEWS_OF_ALL]
        reasons = {each.what for each in fleet}
        codes = {host: shown[host]["readyz"].code for host in self.answering}
        return (
            {each.level for each in fleet} == {self.level}
            and len(reasons) == 1
            and any(map(pattern(*self.whats).fullmatch, reasons))
            and codes == {host: 503 if host in self.unready else 200 for host in self.answering}
        )


VIEWS_OF_ALL = frozenset({"status", "rpc", "top", "api", "page"})
"""These views join the answers of all hosts. A host's `/readyz` and `/metrics` are about its own work."""
OK = ("everything is running",)
HOST_PROBLEMS = (
    HostProblem(paused, "ok", OK),
    HostProblem(long_batch, "degraded", ("a: N of N partitions warn",), alerts=frozenset({"KctlFleetDegraded"})),
    HostProblem(
        worker_down,
        "degraded",
        ("a: no worker has worked",),
        unready=("a",),
        alerts=frozenset({"KctlFleetDegraded", "KctlWorkerDown", "KctlWorkerGivenUp"}),
    ),
    HostProblem(
        throttled,
        "failing",
        ("a: the storage has been full",),
        unready=("a",),
        alerts=frozenset({"KctlFleetFailing", "KctlStorageFull", "KctlStorageNearLimit"}),
    ),
    HostProblem(
        frozen,
        "degraded",
        ("host a has left the group of masters without notice",),
        answering=("b", "c"),
        alerts=frozenset({"KctlFleetDegraded", "KctlHostMissing", "KctlMasterDown"}),
    ),
)
