"""A handler: what a sinker calls with messages. `kctl.toml` beside this file names it.

Each message is acknowledged on its own. True: it is done, for good. A reason, or False: try it again later; after
`sinkers.max_tries` it becomes a dead letter with the reason, to be listed with `kctl storage dead list`.
"""

import json
import math

from kctl_agent.message import Message


def handle(messages: list[Message]) -> list[bool | Exception]:
    """Print the amount of each order. What is no order is refused, and does not hold up the others."""
    return [_handle_one(message) for message in messages]


def _handle_one(message: Message) -> bool | Exception:
    try:
        amount = amount_of(message)
    except (ValueError, KeyError, TypeError) as error:
        return error
    print(f"{message.topic}-{message.partition} offset {message.offset}: {amount:.2f}", flush=True)  # noqa: T201
    return True


def amount_of(message: Message) -> float:
    """The amount of an order. Raises ValueError, KeyError, TypeError: it is none."""
    amount = json.loads(message.value or b"")["amount"]
    if isinstance(amount, bool) or not math.isfinite(amount):
        raise ValueError(f"{amount!r} is no amount")
    return float(amount)


class Ledger:
    """The same as a class, for a handler that keeps something open: `handler = "handler:Ledger"`.

    One process makes one of it, and calls it from one thread.
    """

    def open(self) -> None:
        """Before the first batch. What it raises ends the sinker, which is started again after a back-off."""
        self._total = 0.0

    def handle(self, messages: list[Message]) -> list[bool | Exception]:
        acks = [_handle_one(message) for message in messages]
        self._total += sum(amount_of(message) for message, ack in zip(messages, acks, strict=True) if ack is True)
        return acks

    def close(self) -> None:
        """After the last batch, when the sinker is stopped in order."""
        print(f"total of this process: {self._total:.2f}", flush=True)  # noqa: T201
