import logging
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, MessageSizeTooLargeError

from kctl.dead_letters.sending import Sender
from kctl.errors import KctlError
from kctl.kafka.produce import Production, RetryReasons
from kctl_agent.message import Message
from kctl_agent.storage.block import Block, pack
from kctl_agent.storage.claim import DeadLetter

CLIENT = logging.getLogger("kafka.producer.sender")


@dataclass
class Refusing(Production):
    errors: dict[bytes, Exception]
    _retry_reasons: RetryReasons = field(default_factory=RetryReasons)
    _topic = "orders"

    def send(self, value: bytes | None, *_: Any) -> Any:
        error = self.errors.get(value or b"")
        return SimpleNamespace(exception=error, succeeded=lambda: error is None, failed=lambda: error is not None)

    def finish(self, *_: Any) -> None:
        pass


def dead_letter(number: int) -> DeadLetter:
    message = Message("orders", 0, number, None, b"%d" % number, 0)
    return DeadLetter(str(number), Block.of("orders", None, 0, pack([message]), "none"), 1, "no", 1.0)


def test_one_that_is_too_large_stays_whatever_was_tried_again_before() -> None:
    production = Refusing({b"2": MessageSizeTooLargeError()})
    CLIENT.warning("error on %s, retrying: %s", "orders-0", "NotLeaderForPartitionError")

    sent = Sender(production)([dead_letter(number) for number in (1, 2, 3)])

    assert [each.id for each in sent] == ["1", "3"]

    production = Refusing({b"%d" % number: KafkaTimeoutError() for number in range(3)})
    CLIENT.warning("got %s for %s, splitting batch", "MessageSizeTooLargeError", "orders-0")

    with pytest.raises(KctlError) as failed:
        Sender(production)([dead_letter(number) for number in range(3)])

    assert "too large" not in str(failed.value).lower()
