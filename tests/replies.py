"""Replies as agents send them, through the edge and the reducer of their command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kctl.master.reduction import COMMANDS
from kctl.reduce import Answer, BrokerSnapshot
from kctl.rpc.fan_out import FanOut
from kctl_agent.wire import JsonObject

__all__ = ["parsed", "reduced_json"]


def parsed(rpc: str, replies: Iterable[Answer[JsonObject]]) -> list[Answer[Any]]:
    """The replies as typed rows; all of them fit."""
    outcome = COMMANDS[rpc].parsed(FanOut(list(replies), []))
    assert outcome.failed == []
    return outcome.answers


def reduced_json(rpc: str, replies: Iterable[Answer[JsonObject]], brokers: BrokerSnapshot | None = None) -> JsonObject:
    """The result as it is sent and printed."""
    command = COMMANDS[rpc]
    return command.encoded(command.reduce(parsed(rpc, replies), brokers or BrokerSnapshot()))
