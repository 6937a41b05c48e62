"""A stand-in worker's reader: it consumes its partitions, commits, and counts for its storage."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, inf
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from kctl_agent.errors import StorageError
from kctl_agent.process.stats import counted
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.partitions import PartitionReply
from kctl_agent.storage.kinds import open_lake, open_storage
from kctl_agent.worker.consumer_group.membership import MemberLost, Membership
from kctl_agent.worker.settings import KafkaSettings

_COUNT_SECONDS, _READ_SECONDS = 1.0, 0.5


class Reader:
    """Reads at most `at_once` messages of a partition each half second, and stores none."""

    def __init__(
        self,
        membership: Membership,
        kafka: KafkaSettings,
        storage: Mapping[str, Any],
        at_once: int,
        skipped: str,
        capacity: float = inf,
    ) -> None:
        """`skipped` is a partition that it never reads, as text, or empty. `capacity` is the limit of messages per
        second over all partitions."""
        self.rows_total = self.batches_total = 0
        self._capacity = capacity
        self.storage: StorageReply | None = None
        self._membership = membership
        self._at_once = at_once
        self._skipped = skipped
        self._storage = open_lake(storage) if storage["mode"] == "lake" else open_storage(storage)
        self._is_prepared = False
        self._count_at = self._read_at = 0.0
        self._fetched: dict[TopicPartition, deque[tuple[int, float]]] = {}
        self._read: dict[TopicPartition, tuple[int, float]] = {}  # committed offset, timestamp of the message before it
        self._consumer = KafkaConsumer(
            bootstrap_servers=kafka.bootstrap_servers,
            group_id=kafka.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )

    def turn(self, is_paused: Callable[[TopicPartition], bool]) -> None:
        now = time.monotonic()
        if now >= self._count_at:
            self._count_at = now + _COUNT_SECONDS
            self._count()
        if now >= self._read_at:
            self._read_at = now + _READ_SECONDS
            self._take(is_paused)

    def _take(self, is_paused: Callable[[TopicPartition], bool]) -> None:
        assigned = self._membership.partitions
        if set(assigned) != self._consumer.assignment():
            self._consumer.assign(list(assigned))
            self._fetched = {each: self._fetched.get(each, deque()) for each in assigned}
            self._read = {each: at for each, at in self._read.items() if each in assigned}
        for each, records in (self._consumer.poll(timeout_ms=0) if assigned else {}).items():
            self._fetched[each] += [(record.offset + 1, record.timestamp / 1000) for record in records]
        is_full = self.storage is None or self.storage.full is not None
        read = [each for each in assigned if not is_full and not is_paused(each)]
        read = [each for each in read if str(each.partition) != self._skipped]
        waiting = {each: [*self._fetched[each]] for each in read if self._fetched[each]}
        share = min(self._capacity * _READ_SECONDS / max(sum(map(len, waiting.values())), 1), 1.0)
        if done := {each: found[: min(self._at_once, ceil(len(found) * share))] for each, found in waiting.items()}:
            self._commit(done)

    @property
    def batch_seconds_total(self) -> float:
        return self.rows_total / self._capacity

    def partitions(self, generation: int) -> tuple[PartitionReply, ...]:
        nothing = None, None
        return tuple(
            PartitionReply(
                each.topic,
                each.partition,
                committed=self._read.get(each, nothing)[0],
                position=self._read.get(each, nothing)[0],
                last_timestamp=self._read.get(each, nothing)[1],
                generation=generation,
            )
            for each in self._membership.partitions
        )

    def close(self) -> None:
        self._consumer.close(autocommit=False)

    def _commit(self, done: Mapping[TopicPartition, list[tuple[int, float]]]) -> None:
        try:
            self._membership.commit({each: messages[-1][0] for each, messages in done.items()})
        except (KafkaError, MemberLost):  # a rebalance: the next owner reads them
            return
        self.batches_total += 1
        for each, messages in done.items():
            self._read[each] = messages[-1]
            self.rows_total += len(messages)
            for _ in messages:
                self._fetched[each].popleft()

    def _count(self) -> None:
        try:
            if not self._is_prepared:
                self._storage.prepare()
                self._is_prepared = True
            stored, dead = counted(self._storage.identity, self._storage.stats()), self._storage.dead_letter_store()
            self.storage = replace(stored, recent_dead=dead.recent_dead()) if stored.dead and dead else stored
        except StorageError as error:
            self.storage = StorageReply(self._storage.identity, error=str(error))
