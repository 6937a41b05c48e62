"""The handler of the alert tests: acknowledges every message except those with the payload `refuse`."""

from __future__ import annotations

from kctl_agent.message import Message

HANDLER = "tests.acceptance.refusing:refuses"
REFUSED = b"refuse"


def refuses(messages: list[Message]) -> list[bool]:
    return [message.value != REFUSED for message in messages]
