"""Replies as agents send them, through the edge and the reducer of their command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kctl.master.reduction import COMMANDS
from kctl.reduce import Answer, BrokerSnapshot, encoded
from kctl.rows.workers import WorkerStatus
from kctl.rpc.fan_out import FanOut
from kctl_agent.wire import JsonObject

__all__ = ["parsed", "reduced_json", "status_json"]


def parsed(rpc: str, replies: Iterable[Answer[JsonObject]]) -> list[Answer[Any]]:
    """The replies as typed rows; all of them fit."""
    outcome = COMMANDS[rpc].parsed(FanOut(list(replies), []))
    assert outcome.failed == []
    return outcome.answers


def reduced_json(rpc: str, replies: Iterable[Answer[JsonObject]], brokers: BrokerSnapshot | None = None) -> JsonObject:
    """The result as it is sent and printed."""
    command = COMMANDS[rpc]
    return command.encoded(command.reduce(parsed(rpc, replies), brokers or BrokerSnapshot()))


def status_json(**more: Any) -> JsonObject:
    """A worker as its supervisor sees it, as the master sends it: one that runs, but for what is given."""
    status = WorkerStatus("worker-0", "worker", "running", "running", 4711, 5.0, {}, None, None, "/log/worker-0.log")
    return {**encoded(status), **more}
