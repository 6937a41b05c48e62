"""Sends dead letters to a topic, each at least once. After an interruption, some may be sent again.

A repeat has the same header `kctl-dead-letter` as the first message, so that consumers can drop repeats. Null header
values become empty, because kafka-python cannot send null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from kctl.errors import MessageTooLarge, OperationFailed, OperationRefused
from kctl_agent.errors import StorageError

if TYPE_CHECKING:
    from kctl.config.sections import Config
    from kctl.kafka.produce import Production
    from kctl_agent.message import Message
    from kctl_agent.storage.claim import DeadLetter

Send: TypeAlias = "Callable[[list[DeadLetter]], list[DeadLetter]]"
HEADER = "kctl-dead-letter"
TIMEOUT_SECONDS = 30.0


class _Unsendable(Exception):
    pass


class Sender:
    """Sends dead letters to one topic. Use it on one thread."""

    def __init__(self, production: Production) -> None:
        self._production = production
        self._sent = self._refused = 0
        self._reason = ""

    def __call__(self, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
        """Sends dead letters and returns the acknowledged ones. Skips and counts dead letters that can never be sent:
        unreadable, with neither key nor value, or too large for the topic. If sending fails for another reason, raises
        KctlError. Some dead letters may have been sent before the error."""
        there = [
            each
            for each, futures in self._handed_over(dead_letters)
            if all(future.succeeded() for future in futures) or self._is_there_alone(each)
        ]
        self._sent += len(there)
        return there

    def _is_there_alone(self, dead_letter: DeadLetter) -> bool:
        # A rejected message makes the others of its batch fail too, so this one is sent again in its own batch.
        self._production.forget_retries()
        handed_over = self._handed_over([dead_letter])
        failed = [future for _, futures in handed_over for future in futures if future.failed()]
        for future in failed[:1]:
            self._judge(self._production.explained(future.exception), dead_letter)
        return bool(handed_over) and not failed

    def check(self) -> None:
        """Call this after the last dead letter. Raises OperationFailed if some were skipped."""
        if self._refused:
            raise OperationFailed(
                f"{self._sent} were sent, {self._refused} cannot be sent and stay, for example {self._reason}"
            )

    def _handed_over(self, dead_letters: list[DeadLetter]) -> list[tuple[DeadLetter, list[Any]]]:
        found = []
        for each in dead_letters:
            try:
                found.append((each, [self._send(message, name_of(each)) for message in each.messages()]))
            except (StorageError, _Unsendable) as error:
                self._judge(error, each)
        self._production.finish()
        return found

    def _send(self, message: Message, name: str) -> Any:
        if message.key is None and message.value is None:
            raise _Unsendable("it has neither key nor value, which kafka-python does not send")
        others = [(header, value or b"") for header, value in message.headers if header != HEADER]
        return self._production.send(message.value, message.key, None, [*others, (HEADER, name.encode())])

    def _judge(self, error: Exception, dead_letter: DeadLetter) -> None:
        if not isinstance(error, StorageError | MessageTooLarge | _Unsendable):
            raise error
        self._reason = self._reason or f"{name_of(dead_letter)}: {error}"
        self._refused += 1


@contextmanager
def sending(config: Config, topic: str) -> Iterator[Sender]:
    """Yields a sender to a topic of the fleet's cluster. Raises KctlError. At the end, calls `Sender.check`."""
    from kctl.kafka.client.access import of_fleet
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.client.layout import require, topics_of
    from kctl.kafka.produce import Production

    access = of_fleet(config)
    with ClusterConnection(access, TIMEOUT_SECONDS) as connection:
        if require(topics_of(connection.open([topic])), topic).is_internal:
            raise OperationRefused(f"topic {topic} is internal to Kafka: send to another one")
    # Batches of 16 KiB, because a broker rejects a batch as a whole if it is larger than the topic accepts. Not
    # idempotent, because an idempotent producer stops after a rejected message, and the header reveals repeats anyway.
    with Production(
        access, topic, acks="all", codec="none", timeout_seconds=TIMEOUT_SECONDS, is_bulk=False, is_idempotent=False
    ) as production:
        sender = Sender(production)
        yield sender
    sender.check()


def name_of(dead_letter: DeadLetter) -> str:
    """Returns the value of `HEADER`: `TOPIC-PARTITION@OFFSET/TIME`. TIME is `dead_letter.at` in milliseconds."""
    block = dead_letter.block
    return f"{block.topic}-{block.partition}@{dead_letter.offset}/{dead_letter.at * 1000:.0f}"
