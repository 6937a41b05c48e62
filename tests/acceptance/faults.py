"""Kills parts of a whole fleet under load, and accounts for every message."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from kctl_agent.storage.base import Storage
from tests.acceptance.fleets import SETTLE_SECONDS, START_SECONDS, MakeFleet
from tests.acceptance.handlers import HANDLER, HOLD, Place, counted, given_since, held, is_poison, let_go, sizes
from tests.conftest import eventually
from tests.processes import alive
from tests.servers import kafka_tools
from tests.servers.redis_server import RedisServer

PARTITIONS = 3
SINKERS = ("sinker-0", "sinker-1")
RATE = 1500.0
SINKERS_TOML = f"""\
count = {len(SINKERS)}
handler = "{HANDLER}"
lease_seconds = {{lease_seconds}}
max_tries = 4
retry_backoff_seconds = 0.05
"""
WORKERS_TOML = "backoff_max_seconds = 0.5\nmax_records_per_batch = 5000\nping_timeout_seconds = 60"
"""The master must not react faster than a lease when a sinker stands still."""


class Faults:
    """One worker, two sinkers, a producer. Each `kill_...` returns when messages flow end to end again."""

    def __init__(
        self, make_fleet: MakeFleet, redis: RedisServer | None, lease_seconds: float = 20.0, rate: float = RATE
    ) -> None:
        self._redis = redis
        storage = 'mode = "file"' if redis is None else f'mode = "redis"\nurl = "{redis.url}"'
        self.fleet = make_fleet(
            workers=1,
            partitions=PARTITIONS,
            storage=storage,
            sinkers=SINKERS_TOML.format(lease_seconds=lease_seconds),
            workers_more=WORKERS_TOML,
            trigger="0.0",  # as many puts as there can be, to be killed in
        )
        self.fleet.start()
        eventually(self._is_up, START_SECONDS, "worker and sinkers run")
        self._load = self.fleet.load(rate)
        self.in_flight: set[Place] = set()
        with closing(self.fleet.open_storage()) as storage_:
            self._await_flow(storage_)

    def kill_sinker(self) -> None:
        (self.fleet.ledger / HOLD).touch()
        pid, messages, before_it = eventually(lambda: held(self.fleet.ledger), SETTLE_SECONDS, "a call is held")
        self.in_flight |= messages | before_it
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self._is_up(but=pid), SETTLE_SECONDS, "another sinker runs")

    def outlive_lease(self) -> None:
        """Freezes a sinker inside a handler call until the other has been given its messages. Then the sinker
        continues, and reports its late settle."""
        (self.fleet.ledger / HOLD).touch()
        pid, messages, before_it = eventually(lambda: held(self.fleet.ledger), SETTLE_SECONDS, "a call is held")
        self.in_flight |= messages | before_it
        (before,) = (row for row in self.fleet.workers().values() if row["pid"] == pid)
        os.kill(pid, signal.SIGSTOP)
        written = sizes(self.fleet.ledger)
        try:
            eventually(
                lambda: messages <= given_since(self.fleet.ledger, written), SETTLE_SECONDS, "the other sinker has them"
            )
        finally:
            os.kill(pid, signal.SIGCONT)
        let_go(self.fleet.ledger, pid)
        lost = before["sinker"]["lost"] + len(messages)
        after = eventually(lambda: self._row_with(before["name"], lost), SETTLE_SECONDS, "the loss is reported")
        reported = [e for e in after["events"] if e["kind"] == "lease_lost" and e not in before["events"]]
        assert after["pid"] == pid, after
        assert {partition for partition, _ in messages} & {e["partition"] for e in reported}, reported

    def kill_worker(self) -> None:
        """Kills it inside a put, when a stored offset has moved and its messages cannot be committed yet."""
        pid = self.fleet.workers()["worker-0"]["pid"]
        with closing(self.fleet.open_storage()) as storage:
            self._await_put(storage)
            os.kill(pid, signal.SIGKILL)
            eventually(lambda: self._is_up(but=pid), START_SECONDS, "another worker runs")
            self._await_flow(storage)

    def kill_master(self) -> None:
        """Its processes end by themselves, and leave the group."""
        everybody = self.fleet.family()
        assert any(process.name() == "java" for process in everybody)
        self.fleet.kill()
        eventually(lambda: not alive(everybody), SETTLE_SECONDS, "all of them ended")
        state = kafka_tools.describe_state(self.fleet.broker.bootstrap_servers, self.fleet.group)
        assert (state.state, state.members) == ("Empty", 0)
        self.fleet.start()
        eventually(self._is_up, START_SECONDS, "the next master's worker and sinkers run")
        with closing(self.fleet.open_storage()) as storage:
            self._await_flow(storage)

    def kill_redis(self) -> None:
        assert self._redis is not None
        with closing(self.fleet.open_storage()) as storage:
            self._await_put(storage)
            self._redis.kill()
            self._redis.start()
            self._await_flow(storage)

    def settle_accounts(self) -> None:
        """Every message is handled or dead; only messages of killed sinkers are handled again."""
        self.fleet.finish(self._load)
        with closing(self.fleet.open_storage()) as storage:
            self._await_end()
            eventually(lambda: is_done(storage), SETTLE_SECONDS, "everything is handled or dead")
            dead_letters = [(x.block.partition, x.offset) for x in storage.dead()]
            stored_offsets = self._stored_offsets(storage)
        produced = {(tp.partition, offset) for tp, count in self.fleet.sent.items() for offset in range(count)}
        acknowledged, refused = counted(self.fleet.ledger)
        blamed = set(dead_letters) - set(refused)
        """A message alone in flight at several kills looks like one that kills its process."""
        again = {place: times - 1 for place, times in acknowledged.items() if times > 1}
        print(
            f"produced {len(produced)}, acknowledged {len(acknowledged)}, dead {len(set(dead_letters))}, "
            f"{len(blamed)} of them blamed for kills; in flight in a sinker at its fault {len(self.in_flight)}, "
            f"handled again {sum(again.values())}"
        )
        assert len(produced) == sum(stored_offsets) > 0
        assert set(acknowledged) == {place for place in produced if not is_poison(place[1])}
        assert set(refused) == set(dead_letters) - blamed == produced - set(acknowledged)
        assert blamed | set(again) <= self.in_flight
        assert {place for place, times in Counter(dead_letters).items() if times > 1} <= self.in_flight
        if self._redis is not None:
            put = list(ever_put(self._redis.directory))
            assert len(put) == len(set(put)), "coordinates were stored twice"
            assert set(put) == produced

    def _is_up(self, but: int | None = None) -> bool:
        self.fleet.check()
        rows = self.fleet.workers()
        return (
            rows.keys() == {"worker-0", *SINKERS}
            and rows["worker-0"]["state"] == "running"
            and all(rows[name]["state"] in ("running", "idle") for name in SINKERS)
            and but not in [row["pid"] for row in rows.values()]
        )

    def _row_with(self, name: str, lost: int) -> dict[str, Any] | None:
        row = self.fleet.workers().get(name, {})
        return row if row.get("sinker", {}).get("lost", 0) >= lost else None

    def _stored_offsets(self, storage: Storage) -> list[int]:
        stored_offsets = storage.stored_offsets([(self.fleet.topic, partition) for partition in range(PARTITIONS)])
        return [stored.next for stored in stored_offsets.values()]

    def _await_put(self, storage: Storage) -> None:
        before = self._stored_offsets(storage)
        while self._stored_offsets(storage) == before:
            self.fleet.check()

    def _await_end(self) -> None:
        """Waits as long as the worker makes progress, however slow faults and a busy machine have made it."""
        missing = self.fleet.missing()
        while not self.fleet.is_caught_up():
            more = f"some of the {missing} messages that are left are stored and committed"
            eventually(partial(self._comes_nearer, missing), START_SECONDS, more)
            missing = self.fleet.missing()

    def _comes_nearer(self, missing: int) -> bool:
        return self.fleet.is_caught_up() or self.fleet.missing() < missing

    def _await_flow(self, storage: Storage) -> None:
        stored_offsets, written = self._stored_offsets(storage), sizes(self.fleet.ledger)
        eventually(lambda: self._stored_offsets(storage) > stored_offsets, SETTLE_SECONDS, "messages are stored")
        eventually(lambda: sizes(self.fleet.ledger) != written, SETTLE_SECONDS, "messages are handled")


def is_done(storage: Storage) -> bool:
    stats = storage.stats()
    return stats.pending + stats.processing + stats.delayed == 0


def ever_put(directory: Path) -> Iterator[Place]:
    """Partition and offset of each message ever put into a new block, from the append-only file."""
    for path in sorted(directory.rglob("appendonly.aof*")):
        if path.suffix in (".manifest", ".rdb"):
            continue
        with path.open("rb") as log:
            while words := _command(log):
                if words[0].upper() == b"HSET" and b":block:" in words[1] and b"tp" in words:
                    fields = dict(zip(words[2::2], words[3::2], strict=True))
                    first, last, count = (int(fields[name]) for name in (b"first", b"last", b"count"))
                    assert last - first + 1 == count
                    partition = int(fields[b"tp"].rpartition(b":")[2])
                    yield from ((partition, offset) for offset in range(first, last + 1))


def _command(log: BinaryIO) -> list[bytes]:
    head = log.readline()
    if not head:
        return []
    assert head[:1] == b"*", head
    words = []
    for _ in range(int(head[1:])):
        length = int(log.readline()[1:])
        words.append(log.read(length + 2)[:-2])
    return words
