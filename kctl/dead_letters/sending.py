"""Sends dead letters to a topic, at least once: one that was acknowledged and not removed yet is sent again.

Each message carries its dead letter's name in the header `HEADER`, the same at every try, by which a consumer drops
repeats. A header that is null becomes an empty one: kafka-python sends no nulls there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kctl.config import Config
    from kctl_agent.storage.base import DeadLetter

__all__ = ["HEADER", "Send", "name_of", "sending"]

HEADER = "kctl-dead-letter"
TIMEOUT_SECONDS = 30.0

Send: TypeAlias = "Callable[[list[DeadLetter]], None]"
"""Returns once the brokers have acknowledged all of them. Raises KctlError: of some it is not known."""


@contextmanager
def sending(config: Config, topic: str) -> Iterator[Send]:
    """What sends to a topic of the fleet's cluster. For one thread.

    Raises KctlError: the brokers cannot be reached, or have no such topic.
    """
    from kctl.kafka.client.access import of_fleet
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.client.layout import require, topics_of
    from kctl.kafka.produce import Production

    access = of_fleet(config)
    with ClusterConnection(access, TIMEOUT_SECONDS) as connection:
        require(topics_of(connection.open([topic])), topic)
    with Production(
        access, topic, acks="all", codec="none", timeout_seconds=TIMEOUT_SECONDS, is_bulk=True
    ) as production:

        def send(dead_letters: list[DeadLetter]) -> None:
            for each in dead_letters:
                for message in each.messages():
                    others = [(name, value or b"") for name, value in message.headers if name != HEADER]
                    production.send(message.value, message.key, None, [*others, (HEADER, name_of(each).encode())])
            production.finish()
            if production.problem is not None:
                raise production.problem

        yield send


def name_of(dead_letter: DeadLetter) -> str:
    """`TOPIC-PARTITION@OFFSET/TIME`: where its message was in Kafka, and when it died, in milliseconds since 1970."""
    block = dead_letter.block
    return f"{block.topic}-{block.partition}@{dead_letter.offset}/{dead_letter.at * 1000:.0f}"
