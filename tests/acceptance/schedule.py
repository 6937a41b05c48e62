"""Kills or freezes any part of a fleet under load at any time, by a schedule that a seed reproduces.

The schedule restarts what systemd restarts in production: broker, Redis and master. Everything else is up to the fleet.
"""

import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import psutil
from deltalake import DeltaTable
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import OffsetSpec

from kctl.demo.kafka_broker import two_free_ports
from kctl_agent.storage.limits import StorageStats
from tests.acceptance.accounts import account, ever_put, keep_account
from tests.acceptance.delta_spark import DeltaSpark
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, MakeFleet, session_of
from tests.acceptance.handlers import HANDLER, Place, acknowledged, is_poison
from tests.acceptance.tables import Lake, places_by_statistics, sent
from tests.conftest import eventually
from tests.processes import command_line
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.redis_server import RedisServer

PARTITIONS = int(os.environ.get("KCTL_TEST_PARTITIONS", "4"))
RATE = 400.0
LONGEST_PAUSES_SECONDS = (1.0, 8.0)  # between two kills: most kills hit a process that is starting
KILLS_IN_A_ROW = 5  # then everything may start, so that the next kill hits a fleet at work
FREEZES = 0.3  # the share of SIGSTOPs, which end by themselves
FREEZE_SECONDS = (1.0, 30.0)  # shorter and longer than a session (6 s) and a lease (20 s)
LONGEST_ABSENCE_SECONDS = 3.0
SINKERS = ("sinker-0", "sinker-1")
WORKERS = ("worker-0", "worker-1")
MASTER_RESTART_SECONDS = 1.0
_KINDS = {  # words of a command line, and what they identify
    "java": "a JVM",
    "kctl_agent.engine": "the engine's Python",
    "kctl_agent.worker": "a worker's Python",
    "kctl_agent.sinker": "a sinker",
    "kctl_agent.worker.query.daemon": "an executor's Python",
}
MAINTENANCE = "the maintenance"
MAINTENANCE_COMMANDS = ("optimize",), ("vacuum", "--retention-hours", "0", "--yes")
"""Commands of `kctl storage` that run in a loop; no replaced file is kept."""
KINDS = ("broker", "master", "redis", MAINTENANCE, *_KINDS.values())
WORKERS_TOML = "backoff_max_seconds = 0.5\nmax_records_per_batch = 5000\nping_timeout_seconds = 60"
"""The master must not react faster than a lease when a sinker stands still."""
MARKING = "tests.acceptance.transforms:every_tenth_marked"
SINKERS_TOML = f"""\
count = 2
handler = "{HANDLER}"
lease_seconds = 20.0
max_tries = 8
retry_backoff_seconds = 0.05
"""


class OwnBroker(KafkaBroker):
    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._own_ports = two_free_ports()

    def begin(self) -> Callable[[], None]:
        return self.launch(self._own_ports)


class Schedule:
    """Two workers, two sinkers, a producer. `run` kills, `settle_accounts` checks the result.

    With a table, there are no sinkers and no Python in the executors. Workers store the rows, and one message in ten
    becomes a dead letter. Compactions and vacuums run all the time.
    """

    def __init__(
        self,
        seed: int,
        make_fleet: MakeFleet,
        broker: OwnBroker,
        redis: RedisServer | None = None,
        lake: Lake | None = None,
    ) -> None:
        """Without a Redis or a table, the storage is a file."""
        self._chance = random.Random(seed)
        self._broker = broker
        self._redis = redis
        self._lake = lake
        self._is_up: dict[str, bool] = {"broker": True, "redis": True, "master": True}
        if redis is None:
            del self._is_up["redis"]
        self._due: list[tuple[float, str]] = []
        self._frozen: dict[psutil.Process, float] = {}
        self._maintenance: psutil.Popen | None = None
        self._maintenance_commands: Iterator[Sequence[str]] = iter(())
        self.struck: Counter[str] = Counter()
        self.fleet = make_fleet(
            workers=2,
            partitions=PARTITIONS,
            on=broker,
            storage=self._storage_toml(),
            sinkers="" if lake else SINKERS_TOML,
            workers_more=f'{WORKERS_TOML}\ntransform = "{MARKING}"' if lake else WORKERS_TOML,
            trigger="0.0",
        )
        self._names = {*WORKERS, *(() if lake else SINKERS), *(["engine"] if self.fleet.has_engine else [])}
        absent = {
            *([] if redis else ["redis"]),
            *([] if lake else [MAINTENANCE]),
            *([] if self.fleet.has_engine else [_KINDS["kctl_agent.engine"]]),
        }
        self._kinds = tuple(kind for kind in KINDS if kind not in absent)
        self.fleet.start()
        eventually(self.is_whole, START_SECONDS, "workers and sinkers run")
        if redis is None and lake is None:
            keep_account(self.fleet.storage.path)
        self._load = self.fleet.load(RATE)

    def run(self, strikes: int) -> None:
        """Kills or freezes `strikes` living parts, with a pause, which may be zero, before each."""
        if self._lake is not None:
            self._maintenance_commands = cycle(MAINTENANCE_COMMANDS)
        try:
            self._run(strikes)
        finally:
            self._maintenance_commands = iter(())
            if self._maintenance is not None:
                self._maintenance.kill()
                self._maintenance.wait()

    def close(self) -> None:
        # The fleet's end waits for frozen processes that a failed test has left, and they would outlive it.
        for process in self._frozen:
            with suppress(psutil.NoSuchProcess):
                process.resume()
        self._frozen.clear()

    def _run(self, strikes: int) -> None:
        for number in range(strikes):
            if number % KILLS_IN_A_ROW == 0:
                self._await_flow()
            # Each strike draws all random values, so that they do not depend on what lives at that moment.
            pause = self._chance.uniform(0.0, self._chance.choice(LONGEST_PAUSES_SECONDS))
            order = self._chance.sample(self._kinds, len(self._kinds))
            absence = self._chance.uniform(0.0, LONGEST_ABSENCE_SECONDS)
            is_freeze, freeze = self._chance.random() < FREEZES, self._chance.uniform(*FREEZE_SECONDS)
            self._wait(pause)
            if is_freeze:
                kind = self._strike(order, partial(self._freeze, seconds=freeze))
                what = f"{kind}, frozen for {freeze:.0f} s"
            else:
                what = kind = self._strike(order, partial(self._kill, absence_seconds=absence))
            self.struck[("frozen " if is_freeze else "killed ") + kind] += 1
            print(f"{time.strftime('%H:%M:%S')} struck: {what}", flush=True)

    def _strike(self, kinds: Sequence[str], strike: Callable[[str], bool]) -> str:
        """Strikes the first kind with a living part. If all are away or frozen, waits for one."""

        def struck() -> str | None:
            self._keep_up()
            return next((kind for kind in kinds if strike(kind)), None)

        kind: str = eventually(struck, START_SECONDS, "there is a part to strike")
        return kind

    def is_whole(self) -> bool:
        self._keep_up()
        if not all(self._is_up.values()):
            return False
        rows = self.fleet.processes()
        return rows.keys() == self._names and all(row["state"] in ("running", "idle") for row in rows.values())

    def settle_accounts(self) -> None:
        """Checks that all processes run without help, and that no message is lost, stored twice or left over."""
        self._await_flow()
        self.fleet.finish(self._load)
        eventually(self.fleet.is_caught_up, START_SECONDS, "everything is stored and committed")
        produced = {(tp.partition, offset) for tp, count in self.fleet.sent.items() for offset in range(count)}
        assert {p: count for (_, p), count in self.fleet.sent.items()} == self._ends(), "produced, as the broker counts"
        if self._lake is None:
            self._settle_storage(produced)
        else:
            self._settle_table(self._lake)
        eventually(self.is_whole, SETTLE_SECONDS, "the fleet is still whole")
        eventually(lambda: not self._strangers(), SETTLE_SECONDS, "no process is left that nobody supervises")
        assert self._files() == {"master.json", "master.lock", "master.pid", "master.sock", "master.start"} | {
            f"{name}.{suffix}" for name in self._names for suffix in ("pid", "sock", "start")
        }

        assert self.fleet.stop() == 0
        eventually(lambda: not list(self._marked()), 10, "every process has ended")
        assert self._files() == set()
        if self._lake is not None:
            self._count_by_statistics(self._lake)

    def _storage_toml(self) -> str:
        if self._lake is not None:
            return self._lake.settings('target_file_bytes = "256k"')  # many files, most of which a query skips
        return "" if self._redis is None else f'mode = "redis"\nurl = "{self._redis.url}"'

    def _settle_table(self, lake: Lake) -> None:
        produced, rows, dead = set(sent(self.fleet)), lake.places(), lake.dead_letters()
        print(f"{dict(self.struck)}; produced {len(produced)}, rows {rows.total()}, dead letters {dead.total()}")
        marked = {place for place in produced if place[2] % 10 == 0}
        assert not [place for place, count in (rows + dead).items() if count > 1], "stored twice"
        assert (set(rows), set(dead)) == (produced - marked, marked)

    def _count_by_statistics(self, lake: Lake) -> None:
        """Checks how Delta's own Spark finds rows in a table that was compacted meanwhile."""
        assert any(entry.get("kctl") == "compaction" for entry in DeltaTable(lake.path).history())
        ends = {tp.partition: count for tp, count in self.fleet.sent.items()}
        with DeltaSpark(lake.path.with_name("delta")) as delta:
            rows = places_by_statistics(delta, lake.path, ends)
            dead = places_by_statistics(delta, lake.dead_letters_path, ends)
        print(f"by statistics {rows.total()} rows, {dead.total()} dead letters")
        assert rows + dead == sent(self.fleet)
        assert not [place for place in dead if place[2] % 10]

    def _settle_storage(self, produced: set[Place]) -> None:
        with closing(self.fleet.open_storage()) as storage:
            eventually(lambda: is_done(storage.stats()), SETTLE_SECONDS, "everything is handled or dead")
            dead = {(dead_letter.block.partition, dead_letter.offset) for dead_letter in storage.dead()}
        handled = acknowledged(self.fleet.ledger)
        put = list(ever_put(self._redis.directory) if self._redis else account(self.fleet.storage.path))
        again = handled.total() - len(handled)
        blamed = {place for place in dead if not is_poison(place[1])}
        print(
            f"{dict(self.struck)}; produced {len(produced)}, stored {len(put)}, handled {len(handled)}, of them "
            f"again {again}; dead {len(dead)}, of them blamed for kills {len(blamed)}"
        )
        assert len(put) == len(set(put)), "stored twice"
        assert set(put) == produced
        assert set(handled) | dead == produced

    def _await_flow(self) -> None:
        eventually(self.is_whole, 2 * START_SECONDS, "the fleet is whole")
        handled = self._handled()
        eventually(lambda: self._handled() > handled, SETTLE_SECONDS, "messages are handled")

    def _handled(self) -> int:
        self._keep_up()
        if self._lake is not None:
            return self._lake.rows()
        return sum(path.stat().st_size for path in self.fleet.ledger.glob("*.ledger"))

    def _ends(self) -> dict[int, int]:
        places = {TopicPartition(self.fleet.topic, number): OffsetSpec.LATEST for number in range(PARTITIONS)}
        with KafkaAdminClient(bootstrap_servers=self._broker.bootstrap_servers) as admin:
            return {tp.partition: found.offset for tp, found in admin.list_partition_offsets(places).items()}

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            self._keep_up()
            if time.monotonic() >= until:
                return
            threading.Event().wait(min(0.1, max(until - time.monotonic(), 0.0)))

    def _start(self, part: str) -> None:
        if part == "broker":
            self._broker.begin()
        elif part == "redis":
            assert self._redis is not None
            self._redis.start()
        else:
            self.fleet.start()
        self._is_up[part] = True

    def _keep_up(self) -> None:
        """Restarts a master that found no broker and ended with an error, as systemd does with Restart=on-failure."""
        for process, until in list(self._frozen.items()):
            if until <= time.monotonic():
                del self._frozen[process]
                with suppress(psutil.NoSuchProcess):
                    process.resume()
        if self._is_up["master"] and self.fleet.has_ended:
            self._absent("master", MASTER_RESTART_SECONDS)
        for at, part in list(self._due):
            if at <= time.monotonic():
                self._due.remove((at, part))
                self._start(part)
        if self._maintenance is None or self._maintenance.poll() is not None:
            for command in islice(self._maintenance_commands, 1):
                kctl = ("nice", sys.executable, "-m", "kctl", "-c", str(self.fleet.config))
                self._maintenance = psutil.Popen([*kctl, "storage", *command])

    def _absent(self, part: str, seconds: float) -> None:
        self._is_up[part] = False
        self._due.append((time.monotonic() + seconds, part))

    def _kill(self, kind: str, absence_seconds: float) -> bool:
        if kind in self._is_up:
            if self._is_up[kind]:
                redis = self._redis.kill if self._redis else None
                kill = {"broker": self._broker.kill, "redis": redis, "master": self.fleet.kill}[kind]
                assert kill is not None
                kill()
                self._absent(kind, absence_seconds)
                return True
            return False
        process = self._one(kind)
        if process is not None:
            process.kill()
        return process is not None

    def _freeze(self, kind: str, seconds: float) -> bool:
        if kind in self._is_up:
            redis = self._redis.pid if self._redis else None
            pid = {"broker": self._broker.pid, "redis": redis, "master": self.fleet.pid}[kind]
            process = psutil.Process(pid) if pid is not None and self._is_up[kind] else None
        else:
            process = self._one(kind)
        if process is None or process in self._frozen:
            return False
        process.suspend()
        self._frozen[process] = time.monotonic() + seconds
        return True

    def _one(self, kind: str) -> psutil.Process | None:
        if kind == MAINTENANCE:
            return self._maintenance if self._maintenance is not None and self._maintenance.poll() is None else None
        return next((each for each in self._marked() if _kind(each) == kind), None)

    def _marked(self) -> Iterator[psutil.Process]:
        run_dir = str(self.fleet.directory / "run")
        for process in psutil.process_iter():
            try:
                if (
                    process.environ().get("KCTL_SUPERVISED", "").startswith(run_dir)
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    yield process
            except psutil.Error:
                continue  # it has just ended

    def _strangers(self) -> list[psutil.Process]:
        sessions = {row["pid"] for row in self.fleet.processes().values()}
        return [process for process in self._marked() if session_of(process.pid) not in {*sessions, None}]

    def _files(self) -> set[str]:
        return set(os.listdir(self.fleet.directory / "run"))


def is_done(stats: StorageStats) -> bool:
    return stats.pending + stats.processing + stats.delayed == 0


def _kind(process: psutil.Process) -> str | None:
    words = command_line(process)
    kinds = {kind for word in words for part, kind in _KINDS.items() if word == part or word.endswith(f"/{part}")}
    return next(iter(kinds), None)
