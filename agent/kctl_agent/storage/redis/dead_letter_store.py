"""Dead letters in Redis. A run is a sorted set of the dead letters of one cause and partition, by time of death."""

import heapq
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from kctl_agent.storage.ack_rules import requeued
from kctl_agent.storage.causes import DeathCause
from kctl_agent.storage.claim import HOUR_SECONDS, DeadLetter, DeadLetterGroup, GroupCount
from kctl_agent.storage.numbered_dead_letters import NumberedDeadLetters, Place
from kctl_agent.storage.redis.client import RedisSession, as_unusable
from kctl_agent.storage.redis.codec import DEAD_LETTER, dead_letter_of, name_of, run_of, words
from kctl_agent.storage.selection import Selection

PAGE = 500
PAGE_BYTES = 16 << 20
Run = tuple[str, DeathCause]


class RedisDeadLetters(NumberedDeadLetters):
    _session: RedisSession

    def _dead_now(self) -> float:
        return self._session.server_time()

    def _last_dead(self) -> int:
        with as_unusable(self._session.place):  # blocks get numbers from the same sequence
            return int(self._session.client.get(self._session.prefix + "seq") or 0)

    def _dead_places(self, selection: Selection, after: Place | None, limit: int) -> list[Place]:
        keys = [key for key, _ in _runs(self._session, selection)]
        found = _behind(self._session, keys, selection, after, limit)
        return list(itertools.islice(heapq.merge(*found), limit))

    def _sift_dead(self, selection: Selection, numbers: list[int]) -> list[int]:
        bounds = (selection.tries_from, selection.tries_to, selection.offset_from, selection.offset_to)
        wanted = words(*bounds, selection.traceback, selection.key, selection.text)
        return [int(id_) for id_ in self._session.run("sift_dead", *wanted, *(f"{number:016}" for number in numbers))]

    def _read_dead(self, numbers: Sequence[int]) -> Iterator[DeadLetter]:
        session = self._session
        for begin in range(0, len(numbers), PAGE):
            for page in _by_bytes(session, [f"{number:016}" for number in numbers[begin : begin + PAGE]]):
                rows = session.replies(page, lambda to, id_: to.hmget(session.key("dead", id_), *DEAD_LETTER))
                yield from (dead_letter_of(id_, row) for id_, row in zip(page, rows, strict=True) if row[0])

    def _indexed_groups(self, selection: Selection, hours: int, now: float) -> list[DeadLetterGroup]:
        session = self._session
        least, most = _scores(selection)
        runs = _separate_runs(session, selection)
        edges = [now - hour * HOUR_SECONDS for hour in range(hours + 1)]
        replies: list[Any] = []
        for begin in range(0, len(runs), PAGE):  # a handler may give each message its own reason
            with as_unusable(session.place), session.client.pipeline(transaction=False) as pipeline:
                for key, _ in runs[begin : begin + PAGE]:
                    pipeline.zcount(key, least, most)
                    pipeline.zrangebyscore(key, least, most, 0, 1, withscores=True)
                    pipeline.zrevrangebyscore(key, most, least, 0, 1, withscores=True)
                    for until, since in itertools.pairwise(edges):
                        earliest = least if since * 1000 < least else f"({since * 1000:.3f}"
                        pipeline.zcount(key, earliest, f"{min(until * 1000, most):.3f}")
                replies += pipeline.execute()
        found: dict[DeathCause, GroupCount] = {}
        for number, (_, cause) in enumerate(runs):
            count, first, newest, *recent = replies[number * (3 + hours) : (number + 1) * (3 + hours)]
            if count:
                id_, at = newest[0]
                group = found.setdefault(cause, GroupCount(cause, hours))
                group.add(count, first[0][1] / 1000, at / 1000, id_.decode(), recent)
        return [count.group() for count in found.values()]

    def _put_back_dead(self, dead_letters: list[DeadLetter]) -> int:
        blocks, ids = requeued(dead_letters, self.block_messages, self.block_bytes, self.codec)
        rows = [
            word
            for b in blocks
            for word in (name_of((b.topic, b.partition)), b.topic_id or "", b.first, b.last, b.count, b.body)
        ]
        done = int(self._session.run_once("requeue_dead", len(ids), *ids, *rows))
        return done if done >= 0 else self._put_back_dead(self._left(dead_letters))

    def _remove_dead(self, dead_letters: list[DeadLetter]) -> int:
        removed = int(self._session.run_once("requeue_dead", len(dead_letters), *(each.id for each in dead_letters)))
        return removed if removed >= 0 else self._remove_dead(self._left(dead_letters))

    def _left(self, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
        return list(self._read_dead([int(each.id) for each in dead_letters]))


def _behind(
    session: RedisSession, keys: list[str], selection: Selection, after: Place | None, limit: int
) -> list[list[Place]]:
    least, most = _scores(selection)
    begin = least if after is None or least > after.at * 1000 else f"{after.at * 1000:.0f}"
    found: list[list[Place]] = []
    ranks = {} if after is None else _ranks(session, keys, after)
    wanted = limit
    while keys:
        with as_unusable(session.place), session.client.pipeline(transaction=False) as pipeline:
            for key in keys:
                if key in ranks:
                    pipeline.zrange(key, ranks[key] + 1, ranks[key] + wanted, withscores=True)
                else:  # this set does not contain `after`
                    pipeline.zrangebyscore(key, begin, most, 0, wanted, withscores=True)
            replies = pipeline.execute()
        read = [[Place(score / 1000, int(id_)) for id_, score in reply if score <= most] for reply in replies]
        left = [[place for place in each if after is None or place > after] for each in read]
        is_short = [len(new) < limit and len(all_) == wanted for new, all_ in zip(left, read, strict=True)]
        found += [each for each, again in zip(left, is_short, strict=True) if not again]
        keys, wanted = [key for key, again in zip(keys, is_short, strict=True) if again], wanted * 4
    return found


def _ranks(session: RedisSession, keys: list[str], after: Place) -> dict[str, int]:
    ranks = session.replies(keys, lambda to, key: to.zrank(key, f"{after.number:016}"))
    return {key: rank for key, rank in zip(keys, ranks, strict=True) if rank is not None}


def _scores(selection: Selection) -> tuple[float, float]:
    least = float("-inf") if selection.died_from is None else selection.died_from * 1000
    return least, float("inf") if selection.died_to is None else selection.died_to * 1000


def _runs(session: RedisSession, selection: Selection) -> list[Run]:
    if not {"topic", "partition", "error_class", "line"} & set(selection.named):
        return [(session.prefix + "dead", DeathCause("", ""))]  # all dead letters
    return _separate_runs(session, selection)


def _separate_runs(session: RedisSession, selection: Selection) -> list[Run]:
    with as_unusable(session.place):
        names = sorted(session.client.smembers(session.prefix + "dead_runs"))
    found = ((name, *run_of(name)) for name in names)
    return [
        (session.key("dead_of", name.decode()), cause)
        for name, tp, cause in found
        if selection.takes_partition(*tp) and selection.takes_cause(cause)
    ]


def _by_bytes(session: RedisSession, ids: list[str]) -> Iterator[list[str]]:
    sizes = session.replies(ids, lambda to, id_: to.hstrlen(session.key("dead", id_), "body"))
    page, size_sum = [], 0
    for id_, size in zip(ids, sizes, strict=True):
        page.append(id_)
        size_sum += size
        if size_sum >= PAGE_BYTES:
            yield page
            page, size_sum = [], 0
    if page:
        yield page
