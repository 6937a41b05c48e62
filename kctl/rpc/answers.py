"""The command line's edge: the master's answer to each command as typed rows, once; nobody checks them again.

Each function imports the rows that it makes, for `kctl rpc` makes those of one command and lasts 50 ms in all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from kctl.errors import BadAnswer
from kctl.rows.fields import BadResult
from kctl_agent.wire import JsonObject

if TYPE_CHECKING:
    from kctl.rows.cluster import BrokerRow, TopicRow
    from kctl.rows.lag import LagGlance, LagTotals
    from kctl.rows.members import GroupMembers
    from kctl.rows.methods import MethodRow
    from kctl.rows.offsets import Offsets
    from kctl.rows.storage import StorageStats
    from kctl.rows.verdict import Verdict
    from kctl.rows.workers import PingRow, WorkerRow, WorkerStatus

__all__ = [
    "block_size",
    "describe",
    "kafka_lag",
    "lag_glance",
    "member_leader",
    "metadata_brokers",
    "metadata_topics",
    "offset_checker",
    "ping",
    "status",
    "typed",
    "verdict",
    "workers",
]

R = TypeVar("R")


def typed(command: str, read: Callable[[JsonObject], R], result: JsonObject | None) -> R:
    """What `read`, one of the others here, makes of the result of `command`.

    Raises:
        BadAnswer: it does not have the shape of this command.
    """
    try:
        return read(result or {})
    except BadResult as error:
        raise BadAnswer(
            f"the master's answer to {command} does not have its shape: {error}; is it of this release?"
        ) from None


def kafka_lag(result: JsonObject) -> LagTotals:
    from kctl.rows.lag import lag_totals

    return lag_totals(result)


def offset_checker(result: JsonObject) -> Offsets:
    from kctl.rows.offsets import offsets

    return offsets(result)


def block_size(result: JsonObject) -> StorageStats:
    from kctl.rows.storage import storage_stats

    return storage_stats(result)


def member_leader(result: JsonObject) -> GroupMembers:
    from kctl.rows.members import group_members

    return group_members(result)


def metadata_brokers(result: JsonObject) -> tuple[BrokerRow, ...]:
    from kctl.rows.cluster import broker_rows

    return broker_rows(result)


def metadata_topics(result: JsonObject) -> tuple[TopicRow, ...]:
    from kctl.rows.cluster import topic_rows

    return topic_rows(result)


def workers(result: JsonObject) -> tuple[WorkerRow, ...]:
    from kctl.rows.workers import supervised_rows

    return supervised_rows(result)


def status(result: JsonObject) -> tuple[WorkerStatus, ...]:
    from kctl.rows.workers import worker_statuses

    return worker_statuses(result)


def ping(result: JsonObject) -> tuple[PingRow, ...]:
    from kctl.rows.workers import ping_rows

    return ping_rows(result)


def describe(result: JsonObject) -> tuple[MethodRow, ...]:
    from kctl.rows.methods import method_rows

    return method_rows(result)


def lag_glance(result: JsonObject) -> LagGlance | None:
    from kctl.rows.lag import lag_glance

    return lag_glance(result)


def verdict(result: JsonObject) -> Verdict:
    from kctl.rows.verdict import verdict_of

    return verdict_of(result)
