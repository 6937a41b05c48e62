"""Reads messages of a topic without a group and without commits."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from kafka import KafkaConsumer, TopicPartition

from kctl.errors import BrokerUnreachable, KctlError
from kctl.kafka.client.access import ClusterAccess
from kctl.kafka.client.reasons import failure

_POLL_MILLISECONDS = 200


@dataclass(frozen=True, slots=True)
class Record:
    """A message as the broker stores it. `timestamp` is in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


Read: TypeAlias = Callable[[str, Mapping[int, int], Mapping[int, int] | None], Iterator[Record]]
"""Reads messages: (topic, start offsets, end offsets by partition) -> messages. Without end offsets it never ends."""


@contextmanager
def reading(access: ClusterAccess, *, is_read_committed: bool, timeout_seconds: float) -> Iterator[Read]:
    """Yields a `Read` function. Its iterators share one consumer, so use only the newest. Raises KctlError if brokers
    reject a request, or if a read with end offsets makes no progress for `timeout_seconds`."""
    milliseconds = int(timeout_seconds * 1000)
    consumer = _consumer(access, is_read_committed, milliseconds)

    def read(topic: str, begin: Mapping[int, int], end: Mapping[int, int] | None) -> Iterator[Record]:
        assigned = {number: TopicPartition(topic, number) for number in begin}
        try:
            consumer.assign(list(assigned.values()))
            for number, offset in begin.items():
                consumer.seek(assigned[number], offset)
            yield from _polled(consumer, assigned, end, milliseconds)
        except KctlError:
            raise
        except Exception as error:  # as below
            raise failure(error, f"topic {topic}") from error

    try:
        yield read
    finally:
        consumer.close(autocommit=False)


def _consumer(access: ClusterAccess, is_read_committed: bool, milliseconds: int) -> Any:
    try:
        return KafkaConsumer(
            **access.client_settings(),
            client_id="kctl",
            group_id=None,
            enable_auto_commit=False,
            auto_offset_reset="none",
            isolation_level="read_committed" if is_read_committed else "read_uncommitted",
            max_partition_fetch_bytes=64 * 1024 * 1024,
            request_timeout_ms=max(milliseconds, 1000),
            bootstrap_timeout_ms=milliseconds,
            allow_auto_create_topics=False,
        )
    except Exception as error:  # any part of the client may raise
        raise failure(error, f"the brokers at {access.named}") from error


def _polled(
    consumer: Any, assigned: dict[int, Any], end: Mapping[int, int] | None, milliseconds: int
) -> Iterator[Record]:
    waited = 0
    while end is None or any(consumer.position(tp) < end[number] for number, tp in assigned.items()):
        before = [] if end is None else [consumer.position(tp) for tp in assigned.values()]
        batches = consumer.poll(timeout_ms=_POLL_MILLISECONDS)
        for tp, batch in batches.items():
            for each in batch:
                if end is None or each.offset < end[tp.partition]:
                    yield Record(
                        each.topic,
                        each.partition,
                        each.offset,
                        each.timestamp if each.timestamp is not None and each.timestamp >= 0 else None,
                        each.key,
                        each.value,
                        tuple(each.headers or ()),
                    )
        if end is None:
            continue
        has_moved = bool(batches) or before != [consumer.position(tp) for tp in assigned.values()]
        waited = 0 if has_moved else waited + _POLL_MILLISECONDS
        if waited > milliseconds:
            topic = min(assigned.values()).topic
            raise BrokerUnreachable(
                f"topic {topic}: no more messages came for {milliseconds / 1000:g} s, and the end is not reached; "
                "give it longer with --timeout, or look at the broker"
            )
