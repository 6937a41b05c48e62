"""Dead letters of a Redis storage: read in pages, put back, removed."""

from __future__ import annotations

from collections.abc import Iterator

from kctl_agent.storage.ack_rules import requeued
from kctl_agent.storage.claim import EVERYTHING, DeadLetter, Selection
from kctl_agent.storage.redis.client import as_unusable
from kctl_agent.storage.redis.codec import dead_letter_of, name_of
from kctl_agent.storage.redis.session import RedisSession

__all__ = ["expire", "find", "pages", "remove", "requeue"]

PAGE = 500
PAGE_BYTES = 16 << 20
"""That are read at a time."""


def find(session: RedisSession, id_: str) -> DeadLetter | None:
    with as_unusable(session.place):
        row = session.client.hgetall(session.key("dead", id_)) if id_.isdecimal() else None
    return dead_letter_of(id_, row) if row else None


def pages(session: RedisSession, selection: Selection) -> Iterator[list[DeadLetter]]:
    """The oldest first. What dies meanwhile is left to the next call."""
    client, now = session.client, session.server_time()
    with as_unusable(session.place):
        ids = [int(id_) for id_ in client.zrange(session.prefix + "dead", 0, -1)]
    for begin in range(0, len(ids), PAGE):
        for page in _by_bytes(session, ids[begin : begin + PAGE]):
            with as_unusable(session.place), client.pipeline(transaction=False) as pipeline:
                for id_ in page:
                    pipeline.hgetall(session.key("dead", id_))
                rows = pipeline.execute()
            found = [dead_letter_of(str(id_), row) for id_, row in zip(page, rows, strict=True) if row]
            if chosen := [each for each in found if selection.takes_dead_letter(each, now)]:
                yield chosen


def requeue(
    session: RedisSession, dead_letters: list[DeadLetter], block_messages: int, block_bytes: int, codec: str
) -> int:
    """Messages put back to be claimed."""
    blocks, ids = requeued(dead_letters, block_messages, block_bytes, codec)
    rows = [
        word
        for b in blocks
        for word in (name_of((b.topic, b.partition)), b.topic_id or "", b.first, b.last, b.count, b.body)
    ]
    done = int(session.run_once("requeue_dead", len(ids), *ids, *rows))
    if done >= 0:
        return done
    return requeue(session, _left(session, dead_letters), block_messages, block_bytes, codec)


def remove(session: RedisSession, dead_letters: list[DeadLetter]) -> int:
    """Messages removed for good: put back as no blocks."""
    removed = int(session.run_once("requeue_dead", len(dead_letters), *(each.id for each in dead_letters)))
    return removed if removed >= 0 else remove(session, _left(session, dead_letters))


def expire(session: RedisSession, age_seconds: float) -> int:
    """Messages removed that are older. Reads the oldest only: up to the first page in which none is too old."""
    removed = 0
    for page in pages(session, EVERYTHING):
        now = session.server_time()
        old = [each for each in page if now - each.at >= age_seconds]
        removed += remove(session, old) if old else 0
        if len(old) < len(page):
            break
    return removed


def _left(session: RedisSession, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
    """Those that are still there: somebody else was faster with some of them."""
    found = [find(session, each.id) for each in dead_letters]
    return [each for each in found if each is not None]


def _by_bytes(session: RedisSession, ids: list[int]) -> Iterator[list[int]]:
    """Ids in runs that hold `PAGE_BYTES` together, or little more."""
    with as_unusable(session.place), session.client.pipeline(transaction=False) as pipeline:
        for id_ in ids:
            pipeline.hstrlen(session.key("dead", id_), "body")
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
