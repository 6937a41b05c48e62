"""A Redis (6.2 or newer) as storage, for workers and sinkers on several machines.

Every change is one Lua script (`lua/`, whose prelude lists the keys), so it happens as a whole or not at all, and each
can be repeated after a broken connection: a put is judged by the stored offset, a settle by its lease.

Sorted sets and hashes instead of streams: an entry of a stream cannot be given back to its place, made smaller or kept
behind another one, and its idle time stands still for an hour when the server's clock is set back by one. What streams
are chosen for stays true: no step costs more with 10,000 blocks in flight (benchmarks/storage_drain.py measures both).

How durable a put is, is the server's matter: with `appendfsync always` it survives a kill of Redis and a power cut,
with `everysec` neither, because Redis may answer two seconds before it writes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from kctl_agent.message import Message
from kctl_agent.storage.ack_rules import Verdict, as_dead_letters, judge, opened, requeued
from kctl_agent.storage.base import (
    Advance,
    Binding,
    Chunk,
    Put,
    Storage,
    StorageUnusable,
    StoredOffset,
    TopicPartition,
    Writer,
)
from kctl_agent.storage.block import BLOCK_BYTES, Block, Columns
from kctl_agent.storage.claim import EVERYTHING, Claim, DeadLetter, Selection, Settled, StorageStats
from kctl_agent.storage.put_rules import cut, judged, next_version, refuse_moved, refuse_other, skipped
from kctl_agent.storage.redis_client import (
    REPLY_SECONDS,
    as_unusable,
    check_server,
    connect,
    free_memory,
    script,
    transact,
    where,
)
from kctl_agent.storage.redis_codec import block_of, dead_letter_of, name_of, parted, partitions_of, stored_offset_of
from kctl_agent.storage.room import Limits

__all__ = ["RedisStorage"]

LAYOUT_VERSION = b"4"
"""`migrate.lua` brings older ones up to it. Blocks stay as they are: those of layout 1 are read as before."""
SENT_SECONDS = 600
"""After which bytes go that no script has judged: Redis forgot the script, and then their sender died."""
PAGE = 500
PAGE_BYTES = 16 << 20
"""Of dead letters that are read at a time."""
PORTION_BYTES = 2 << 20
"""Of one transaction, as they are sent. Above about 4 MB Redis needs twice the time of the kernel for each byte of its
append-only file: the buffers grow so large that they are given back and asked for anew each time
(benchmarks/README.md)."""


class RedisStorage(Storage):
    """See `Storage`. `namespace` keeps storages apart that share a database: the consumer group, as a rule."""

    def __init__(
        self,
        url: str,
        namespace: str,
        *,
        password_file: Path | None = None,
        block_messages: int = 500,
        block_bytes: int = BLOCK_BYTES,
        codec: str = "none",
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
        reply_seconds: float = REPLY_SECONDS,
    ) -> None:
        self._place = where(url)
        self._url = url
        self._namespace = namespace
        self._password_file = password_file
        self.block_messages = block_messages
        self.block_bytes = block_bytes
        self.codec = codec
        self.limits = limits
        self.prefix = f"{{kctl:{namespace}}}:"
        self.reply_seconds = reply_seconds
        """How long a reply is waited for. An executor, which gets a copy with its task, waits as long as is usual."""
        self._redis: Any = None
        self._scripts: dict[str, Callable[..., Any]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "reply_seconds": REPLY_SECONDS, "_redis": None, "_scripts": {}}

    @property
    def identity(self) -> str:
        return f"redis:{self._place}/{self._namespace}"

    def prepare(self) -> None:
        client = self._client()
        with as_unusable(self._place):
            check_server(client, self._place)
            layout = client.get(self.prefix + "layout")
        if layout != LAYOUT_VERSION:
            layout = self._run("migrate", LAYOUT_VERSION)
        if layout != LAYOUT_VERSION:
            raise StorageUnusable(
                f"{self.identity} has layout {layout.decode()}; this release reads 1 to {LAYOUT_VERSION.decode()}"
            )

    def bind(self, owner: Binding, *, take_over: bool = False) -> str:
        id_, group, cluster_id = self._run(
            "bind", owner.group, owner.cluster_id or "", uuid.uuid4().hex, int(take_over)
        )
        before = Binding(group.decode(), cluster_id.decode() or None)
        refuse_other(self.identity, owner, before, take_over)
        return str(id_.decode())

    def stored_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        wanted = list(partitions)
        client = self._client()
        with as_unusable(self._place), client.pipeline(transaction=False) as pipeline:
            for tp in wanted:
                pipeline.hmget(self._key("offset", name_of(tp)), "topic_id", "next", "version")
            rows = pipeline.execute()
        return {tp: stored for tp, row in zip(wanted, rows, strict=True) if (stored := stored_offset_of(tp, row))}

    def init_offsets(
        self,
        stored_offsets: Collection[StoredOffset],
        seen: Mapping[TopicPartition, StoredOffset] = MappingProxyType({}),
    ) -> None:
        words = [
            word
            for stored in stored_offsets
            for word in (
                name_of(stored.tp),
                *_seen(seen.get(stored.tp)),
                *_placed(next_version(stored, seen.get(stored.tp))),
            )
        ]
        found = self._run("init_offsets", *words)
        for stored, row in zip(stored_offsets, found, strict=False):  # nothing comes back where all was written
            refuse_moved(stored.tp, stored_offset_of(stored.tp, row), seen.get(stored.tp))

    def advance_offsets(self, advances: Collection[Advance]) -> None:
        found = self._run("advance_offsets", *(w for a in advances for w in (name_of(a.tp), a.version, a.start, a.end)))
        for each, row in zip(advances, found, strict=False):
            judged(each, stored_offset_of(each.tp, row))

    def writer(self) -> Writer:
        return RedisWriter(self)

    def put(self, chunk: Chunk) -> Put:
        """What its writers do. Cut once more only if messages of the chunk lie below the stored offset."""
        skip, cut_at = 0, ""
        while True:
            blocks = list(cut(chunk, skip, self.block_messages, self.block_bytes, self.codec))
            place = (name_of(chunk.tp), chunk.topic_id or "", chunk.start, chunk.end, chunk.version, cut_at)
            found = self._send(blocks, place)
            if not found:
                return Put(len(chunk.columns) - skip, skip, sum(len(block.body) for block in blocks))
            stored = judged(chunk, stored_offset_of(chunk.tp, found))
            skip, cut_at = skipped(chunk, stored), str(stored.next)

    def _send(self, blocks: Sequence[Block], place: Sequence[object]) -> Any:
        """The bytes as plain values and the script that judges them, in one transaction. Handed to the script they
        would be copied into Lua and out again, which cost as much as all the rest (benchmarks/README.md)."""
        client, token = self._client(), uuid.uuid4().hex
        names = [f"{token}:{number}" for number in range(len(blocks))]
        rows = [word for b, name in zip(blocks, names, strict=True) for word in (b.first, b.last, b.count, name)]
        sent = {self._key("sent", name): block.body for block, name in zip(blocks, names, strict=True)}
        with as_unusable(self._place):
            return transact(client, sent, SENT_SECONDS, "put", self.prefix, token, *place, *rows)

    def blocks(self) -> Iterator[Block]:
        """Not one snapshot: what is put or settled meanwhile may be in it or not."""
        client = self._client()
        with as_unusable(self._place):
            lines = [client.zrange(self._key("line", name), 0, -1) for name in self._names()]
        ids = sorted(int(id_) for line in lines for id_ in line)
        fields = ("tp", "topic_id", "first", "last", "count", "body")  # the body of layout 1
        for begin in range(0, len(ids), PAGE):
            with as_unusable(self._place), client.pipeline(transaction=False) as pipeline:
                for id_ in ids[begin : begin + PAGE]:
                    pipeline.hmget(self._key("block", id_), *fields)
                    pipeline.get(self._key("body", id_))
                found = pipeline.execute()
            rows = [[*row[:5], body or row[5]] for row, body in zip(found[::2], found[1::2], strict=True)]
            yield from (block_of(row) for row in rows if row[0] is not None)

    def claim(
        self, owner: str, limit: int, lease_seconds: float, *, ordered: bool = False, limit_bytes: int | None = None
    ) -> list[Claim]:
        most = "" if limit_bytes is None else limit_bytes
        while True:
            token = uuid.uuid4().hex
            lease_until = time.monotonic() + lease_seconds
            rows = self._run("claim", owner, token, limit, int(lease_seconds * 1000), int(ordered), most)
            leased = [(id_.decode(), int(tries), block_of(row)) for id_, tries, *row in rows]
            claims, bad = opened(leased, owner, token, lease_until, time.time())
            for id_, dead_letter in bad.items():
                self._settle(id_, token, owner, Verdict(None, (dead_letter,), Settled()), 0.0)
            if claims or not bad:
                return claims

    def settle(
        self, claim: Claim, acks: Sequence[bool], *, reason: str = "", max_tries: int = 1, retry_seconds: float = 0.0
    ) -> Settled:
        verdict = judge(claim, acks, reason, max_tries, self.codec, time.time())
        if verdict.again is claim.block:  # unchanged: its bytes need not travel
            verdict = Verdict(None, (), verdict.settled)
        is_done = self._settle(claim.id, claim.token, claim.owner, verdict, retry_seconds)
        return verdict.settled if is_done else Settled(is_lost=True)

    def _settle(self, id_: str, token: str, owner: str, verdict: Verdict, retry_seconds: float) -> bool:
        settled, dead, again = verdict.settled, verdict.dead, verdict.again
        outcome = f"{settled.gone} {settled.again} {settled.dead}"
        fate = "again" if settled.again else "gone"
        block = (again.first, again.last, again.count, again.body) if again else (0, 0, settled.again, "")
        cause = (dead[0].tries, dead[0].error, int(dead[0].is_damaged)) if dead else (0, "", 0)
        dead_letters = [word for b in (x.block for x in dead) for word in (b.first, b.last, b.count, b.body)]
        delay = int(retry_seconds * 1000)
        return bool(self._run("settle", id_, token, owner, outcome, fate, delay, *block, *cause, *dead_letters))

    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        return bool(self._run("renew", claim.id, claim.token, int(lease_seconds * 1000)))

    def release(self, owner: str, *, count_try: bool = False) -> int:
        return int(self._run("release", owner, int(count_try)))

    def stats(self) -> StorageStats:
        partitions = partitions_of(*self._run("stats"))
        with as_unusable(self._place):
            return StorageStats.of(partitions, self.limits, free_memory(self._client(), self._place))

    def dead_letter(self, messages: Sequence[Message], error: str, topic_id: str | None = None) -> None:
        dead_letters = [
            x for m in messages for x in as_dead_letters([m], topic_id, m.tries, error, self.codec, time.time())
        ]
        rows = [word for x in dead_letters for word in (_name(x.block), x.offset, x.tries, x.block.body)]
        self._run("dead_letter", topic_id or "", dead_letters[0].error if dead_letters else "", *rows)

    def dead(self, selection: Selection = EVERYTHING, limit: int | None = None) -> Iterator[DeadLetter]:
        left = limit
        for page in self._dead_pages(selection):
            yield from page[:left]
            left = None if left is None else max(left - len(page), 0)
            if left == 0:
                return

    def find_dead(self, id: str) -> DeadLetter | None:  # noqa: A002
        with as_unusable(self._place):
            row = self._client().hgetall(self._key("dead", id)) if id.isdecimal() else None
        return dead_letter_of(id, row) if row else None

    def requeue_dead(self, selection: Selection = EVERYTHING) -> int:
        return sum(self._requeue(page) for page in self._dead_pages(selection))

    def _requeue(self, dead_letters: list[DeadLetter]) -> int:
        blocks, ids = requeued(dead_letters, self.block_messages, self.block_bytes, self.codec)
        rows = [
            word for b in blocks for word in (_name(b), b.topic_id or "", b.first, b.last, b.count, b.body)
        ]  # fmt: skip
        done = int(self._run("requeue_dead", len(ids), *ids, *rows))
        if done >= 0:
            return done
        # Somebody else was faster with some of them.
        found = [self.find_dead(dead_letter.id) for dead_letter in dead_letters]
        return self._requeue([dead_letter for dead_letter in found if dead_letter is not None])

    def requeue_stuck(self, selection: Selection = EVERYTHING) -> int:
        age = selection.older_than_seconds
        return int(self._run("stuck", *_words(selection), "" if age is None else int(age * 1000)))

    def clear(self, state: Literal["pending", "dead"], selection: Selection = EVERYTHING) -> int:
        if state == "dead":
            return sum(self._forget(page) for page in self._dead_pages(selection))
        with as_unusable(self._place):
            names = self._names()
        return sum(self._clear(name, selection) for name in names if selection.takes_partition(*parted(name)))

    def _clear(self, name: str, selection: Selection) -> int:
        after: Any = 0
        removed, age = 0, int((selection.older_than_seconds or 0) * 1000)
        while after != b"":
            count, after = self._run("clear", name, after, PAGE, *_words(selection)[2:], age)
            removed += count
        return removed

    def _forget(self, dead_letters: list[DeadLetter]) -> int:
        removed = int(self._run("requeue_dead", len(dead_letters), *(dead_letter.id for dead_letter in dead_letters)))
        if removed >= 0:
            return removed
        found = [self.find_dead(dead_letter.id) for dead_letter in dead_letters]
        return self._forget([dead_letter for dead_letter in found if dead_letter is not None])

    def expire_dead(self) -> int:
        """Reads the oldest only: up to the first page in which none is too old."""
        removed, age = 0, self.limits.dead_seconds
        if age is not None:
            for page in self._dead_pages(EVERYTHING):
                now = self._server_time()
                old = [dead_letter for dead_letter in page if now - dead_letter.at >= age]
                removed += self._forget(old) if old else 0
                if len(old) < len(page):
                    break
        return removed

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()
        self._redis, self._scripts = None, {}

    def _dead_pages(self, selection: Selection) -> Iterator[list[DeadLetter]]:
        """The oldest first. Dead letters that die meanwhile are left to the next call."""
        client, now = self._client(), self._server_time()
        with as_unusable(self._place):
            ids = [int(id_) for id_ in client.zrange(self.prefix + "dead", 0, -1)]
        for begin in range(0, len(ids), PAGE):
            for page in self._by_bytes(ids[begin : begin + PAGE]):
                with as_unusable(self._place), client.pipeline(transaction=False) as pipeline:
                    for id_ in page:
                        pipeline.hgetall(self._key("dead", id_))
                    rows = pipeline.execute()
                dead_letters = [dead_letter_of(str(id_), row) for id_, row in zip(page, rows, strict=True) if row]
                if chosen := [
                    dead_letter for dead_letter in dead_letters if selection.takes_dead_letter(dead_letter, now)
                ]:
                    yield chosen

    def _by_bytes(self, ids: list[int]) -> Iterator[list[int]]:
        """Ids of dead letters in runs that hold `PAGE_BYTES` together, or little more."""
        client = self._client()
        with as_unusable(self._place), client.pipeline(transaction=False) as pipeline:
            for id_ in ids:
                pipeline.hstrlen(self._key("dead", id_), "body")
            sizes = pipeline.execute()
        page, size_sum = [], 0
        for id_, size in zip(ids, sizes, strict=True):
            page.append(id_)
            size_sum += size
            if size_sum >= PAGE_BYTES:
                yield page
                page, size_sum = [], 0
        if page:
            yield page

    def _server_time(self) -> float:
        """Unix seconds, by the clock that dated the dead letters: those of the reading hosts may differ from it."""
        client = self._client()
        with as_unusable(self._place):
            seconds, microseconds = client.time()
        return float(seconds + microseconds / 1_000_000)

    def _names(self) -> list[str]:
        return sorted(name.decode() for name in self._client().smembers(self.prefix + "partitions"))

    def _key(self, kind: str, which: object) -> str:
        return f"{self.prefix}{kind}:{which}"

    def _client(self) -> Any:
        if self._redis is None:
            self._redis = connect(self._url, self._password_file, self.reply_seconds)
        return self._redis

    def _run(self, name: str, *args: object) -> Any:
        client = self._client()
        if name not in self._scripts:
            self._scripts[name] = script(client, name)
        with as_unusable(self._place):
            return self._scripts[name](keys=[self.prefix], args=args)


class RedisWriter(Writer):
    """Shares the storage's connections."""

    def __init__(self, storage: RedisStorage) -> None:
        self._storage = storage
        self._density = 1.0
        """Bytes that were sent for a byte of messages, in the last put."""

    def portions(self, columns: Columns) -> Iterator[Columns]:
        block = self._storage.block_messages
        rows = int(len(columns) * PORTION_BYTES / max(columns.bytes * self._density, 1))
        # Where messages differ in size, a portion may be twice as large as it should; no more than that.
        yield from columns.split(max(rows // block, 1) * block, int(2 * PORTION_BYTES / self._density))

    def put(self, chunk: Chunk) -> Put:
        put = self._storage.put(chunk)
        if put.stored == len(chunk.columns):
            self._density = min(put.bytes / max(chunk.columns.bytes, 1), 1.0)
        return put

    def close(self) -> None: ...


def _name(block: Block) -> str:
    return name_of((block.topic, block.partition))


def _seen(stored: StoredOffset | None) -> tuple[object, ...]:
    """Of a stored offset as `init_offsets.lua` compares it; empty words: there was none."""
    return ("", "") if stored is None else (stored.next, stored.version)


def _placed(stored: StoredOffset) -> tuple[object, ...]:
    return stored.topic_id or "", stored.next, stored.version


def _words(selection: Selection) -> list[object]:
    values: Iterable[object] = (selection.topic, selection.partition, selection.offset_from, selection.offset_to)
    return ["" if value is None else value for value in values]
