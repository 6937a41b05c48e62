"""Redis (6.2 or newer) as storage, for workers and sinkers on several machines.

Every change is one Lua script (`lua/`, whose prelude lists the keys), which Redis runs atomically. If a call is
repeated after a broken connection, the script does not make the change twice. With `appendfsync always`, a put survives
a kill of Redis and a power cut. Otherwise, Redis may confirm a put up to two seconds before writing it to disk.

A retry removes handled messages from a block, which keeps its place in the queue. Redis cannot change an entry of a
stream like this, so kctl uses sorted sets and hashes.
"""

import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

from kctl_agent.message import Message
from kctl_agent.storage.ack_rules import AckVerdict, given_up, judge, opened
from kctl_agent.storage.base import Storage, StorageUnusable, Writer
from kctl_agent.storage.block import Block
from kctl_agent.storage.chunk import NONE_STORED, Advance, Binding, StoredOffset, StoredOffsets, TopicPartition
from kctl_agent.storage.claim import NONE_DEAD, Claim, Errors, Settled
from kctl_agent.storage.limits import StorageStats
from kctl_agent.storage.put_rules import judged, judged_at_start, next_version, refuse_moved, refuse_other
from kctl_agent.storage.redis.client import REPLY_SECONDS, RedisSession, as_unusable, check_server, free_memory
from kctl_agent.storage.redis.codec import block_of, name_of, parted, partitions_of, stored_offset_of, words
from kctl_agent.storage.redis.dead_letter_store import RedisDeadLetters
from kctl_agent.storage.redis.writer import RedisWriter
from kctl_agent.storage.selection import EVERYTHING, Selection

LAYOUT_VERSION = b"6"
PAGE = 500


@dataclass(eq=False, repr=False)
class RedisStorage(RedisDeadLetters, Storage):
    """`namespace`, usually the consumer group, separates storages in one database."""

    url: InitVar[str]
    _namespace: str
    password_file: InitVar[Path | None] = field(default=None, kw_only=True)
    reply_seconds: InitVar[float] = field(default=REPLY_SECONDS, kw_only=True)

    def __post_init__(self, url: str, password_file: Path | None, reply_seconds: float) -> None:
        self._session = RedisSession(url, f"{{kctl:{self._namespace}}}:", password_file, reply_seconds)

    @property
    def identity(self) -> str:
        return f"redis:{self._session.place}/{self._namespace}"

    def prepare(self) -> None:
        client = self._session.client
        with as_unusable(self._session.place):
            check_server(client, self._session.place)
            key = self._session.prefix + "layout"
            layout = client.get(key)
            if layout is None:  # a full Redis rejects every SET
                client.set(key, LAYOUT_VERSION)
        if layout not in (None, LAYOUT_VERSION):
            raise StorageUnusable(
                f"{self.identity} has layout {layout.decode()}, but this release reads {LAYOUT_VERSION.decode()}: name "
                "another storage.namespace, or use the release that wrote it"
            )

    def bind(self, owner: Binding, *, take_over: bool = False) -> str:
        id_, group, cluster_id = self._session.run(
            "bind", owner.group, owner.cluster_id or "", uuid.uuid4().hex, int(take_over)
        )
        before = Binding(group.decode(), cluster_id.decode() or None)
        refuse_other(self.identity, owner, before, take_over)
        return str(id_.decode())

    def stored_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, StoredOffset]:
        wanted, key = list(partitions), self._session.key
        fields = ("topic_id", "next", "version")
        rows = self._session.replies(wanted, lambda to, tp: to.hmget(key("offset", name_of(tp)), *fields))
        return {tp: stored for tp, row in zip(wanted, rows, strict=True) if (stored := stored_offset_of(tp, row))}

    def init_offsets(self, stored_offsets: Collection[StoredOffset], seen: StoredOffsets = NONE_STORED) -> None:
        words: list[object] = []
        for stored in stored_offsets:
            before = seen.get(stored.tp)
            after = next_version(stored, before)
            words += [name_of(stored.tp), *(("", "") if before is None else (before.next, before.version))]
            words += [after.topic_id or "", after.next, after.version]
        found = self._session.run("init_offsets", *words)
        for stored, row in zip(stored_offsets, found, strict=False):  # empty if all were written
            refuse_moved(stored.tp, stored_offset_of(stored.tp, row), seen.get(stored.tp))

    def advance_offsets(self, advances: Collection[Advance]) -> None:
        found = self._session.run(
            "advance_offsets", *(w for a in advances for w in (name_of(a.tp), a.version, a.start, a.end))
        )
        for each, row in zip(advances, found, strict=False):
            judged(each, stored_offset_of(each.tp, row))

    def writer(self) -> Writer:
        return RedisWriter(self._session, self.block_messages, self.block_bytes, self.codec)

    def blocks(self) -> Iterator[Block]:
        """Yields all blocks. Blocks that are stored or removed during the iteration may be missing."""
        client = self._session.client
        with as_unusable(self._session.place):
            lines = [client.zrange(self._session.key("line", name), 0, -1) for name in self._names()]
        ids = sorted(int(id_) for line in lines for id_ in line)
        fields, key = ("tp", "topic_id", "first", "last", "count"), self._session.key
        for begin in range(0, len(ids), PAGE):
            page = ids[begin : begin + PAGE]
            found = self._session.replies(
                page, lambda to, i: (to.hmget(key("block", i), *fields), to.get(key("body", i)))
            )
            rows = zip(found[::2], found[1::2], strict=True)
            yield from (block_of([*row, body]) for row, body in rows if body is not None)

    def claim(
        self, owner: str, limit: int, lease_seconds: float, *, ordered: bool = False, limit_bytes: int | None = None
    ) -> list[Claim]:
        most = "" if limit_bytes is None else limit_bytes
        while True:
            token = uuid.uuid4().hex
            rows = self._session.run("claim", owner, token, limit, int(lease_seconds * 1000), int(ordered), most)
            leased = [(id_.decode(), int(tries), block_of(row)) for id_, tries, *row in rows]
            claims, bad = opened(leased, owner, token, time.time())
            for id_, dead_letter in bad.items():
                self._settle(id_, token, owner, AckVerdict(None, (dead_letter,), Settled()), 0.0)
            if claims or not bad:
                return claims

    def settle(
        self, claim: Claim, acks: Sequence[bool], *, dead: Mapping[int, str] = NONE_DEAD, retry_seconds: float = 0.0
    ) -> Settled:
        verdict = judge(claim, acks, dead, self.codec, time.time())
        if verdict.again is claim.block:  # unchanged: its bytes need not travel
            verdict = AckVerdict(None, (), verdict.settled)
        is_done = self._settle(claim.id, claim.token, claim.owner, verdict, retry_seconds)
        return verdict.settled if is_done else Settled(is_lost=True)

    def _settle(self, id_: str, token: str, owner: str, verdict: AckVerdict, retry_seconds: float) -> bool:
        settled, again = verdict.settled, verdict.again
        outcome = f"{settled.gone} {settled.again} {settled.dead}"
        fate = "again" if settled.again else "gone"
        block = (again.first, again.last, again.count, again.body) if again else (0, 0, settled.again, "")
        dead_letters = [
            word
            for x, b in ((x, x.block) for x in verdict.dead)
            for word in (b.first, b.last, b.count, x.tries, x.error, "\t".join(x.cause), int(x.is_damaged), b.body)
        ]
        delay = int(retry_seconds * 1000)
        return bool(self._session.run("settle", id_, token, owner, outcome, fate, delay, *block, *dead_letters))

    def renew(self, claim: Claim, lease_seconds: float) -> bool:
        return bool(self._session.run("renew", claim.id, claim.token, int(lease_seconds * 1000)))

    def release(self, owner: str, *, count_try: bool = False) -> int:
        return int(self._session.run_once("release", owner, int(count_try)))

    def stats(self) -> StorageStats:
        partitions = partitions_of(*self._session.run("stats"))
        with as_unusable(self._session.place):
            return StorageStats.of(partitions, self.limits, free_memory(self._session.client, self._session.place))

    def dead_letter(
        self, messages: Sequence[Message], error: Errors, topic_id: str | None = None, advance: Advance | None = None
    ) -> None:
        rows = [
            word
            for x, b in ((x, x.block) for x in given_up(messages, error, topic_id, self.codec, time.time()))
            for word in (name_of((b.topic, b.partition)), x.offset, x.tries, x.error, "\t".join(x.cause), b.body)
        ]
        a = advance
        plan = ("",) * 4 if a is None else (name_of(a.tp), a.version, a.start, a.end)
        refused = self._session.run_once("dead_letter", topic_id or "", *plan, *rows)
        if advance is not None and refused:
            judged_at_start(advance, stored_offset_of(advance.tp, refused))

    def requeue_stuck(self, selection: Selection = EVERYTHING) -> int:
        return int(self._session.run_once("stuck", *_words(selection.of_blocks())))

    def clear(self, selection: Selection = EVERYTHING) -> int:
        chosen = selection.of_blocks()
        with as_unusable(self._session.place):
            names = self._names()
        return sum(self._clear(name, chosen) for name in names if chosen.takes_partition(*parted(name)))

    def _clear(self, name: str, selection: Selection) -> int:
        after: Any = 0
        removed = 0
        while after != b"":
            count, after = self._session.run_once("clear", name, after, PAGE, *_words(selection)[2:])
            removed += count
        return removed

    def close(self) -> None:
        self._session.close()

    def _names(self) -> list[str]:
        return sorted(name.decode() for name in self._session.client.smembers(self._session.prefix + "partitions"))


def _words(selection: Selection) -> list[object]:
    age = selection.older_than_seconds
    bounds = (selection.topic, selection.partition, selection.offset_from, selection.offset_to)
    return words(*bounds, None if age is None else int(age * 1000))
