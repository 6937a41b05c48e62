"""The handler of the alert tests: acknowledges every message but those whose payload is `refuse`."""

from __future__ import annotations

from kctl_agent.message import Message

__all__ = ["HANDLER", "REFUSED", "refuses"]

HANDLER = "tests.acceptance.refusing:refuses"
REFUSED = b"refuse"


def refuses(messages: list[Message]) -> list[bool]:
    return [message.value != REFUSED for message in messages]
