"""The edge: an agent's reply to each command as typed rows, once; what does not fit is failed `bad_result` here.

An attached agent may send anything, and a newer one more than is known here: further fields are ignored, an absent
field is unknown (None). The message of a failure names the field, never what the agent sent. Pure, safe in any thread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from math import inf
from typing import Any, TypeAlias, TypeVar

from kctl.reduce.base import Answer
from kctl.rows import fields
from kctl.rows.cluster import BrokerRow, TopicRow, broker_rows, topic_rows
from kctl.rows.fields import NUMBER_OR_NONE, TEXT, WHOLE, WHOLE_OR_NONE, BadResult
from kctl.rows.members import member_row as member
from kctl.rows.methods import MethodRow, method_rows
from kctl.rows.partitions import PartitionRow
from kctl.rows.storage import StorageRow, storage_row
from kctl.rows.workers import ping_row as ping
from kctl.rows.workers import worker_row as worker
from kctl.rpc.fan_out import Failed, FanOut
from kctl_agent.wire import JsonObject

__all__ = [
    "BadResult",
    "Parser",
    "brokers",
    "member",
    "methods",
    "parsed",
    "partitions",
    "ping",
    "storage",
    "topics",
    "worker",
]

R = TypeVar("R")
Parser: TypeAlias = Callable[[str, JsonObject], R]
"""From the sender's name and its result to a row or rows.

Raises:
    BadResult: a field is missing or wrong.
"""


def parsed(parse: Parser[R], outcome: FanOut[JsonObject]) -> FanOut[R]:
    """`outcome` with its answers as rows; whose result does not fit is among the failed, with the code `bad_result`."""
    answers: list[Answer[R]] = []
    failed: list[Failed] = []
    for answer in outcome.answers:
        try:
            answers.append(Answer(answer.sender, parse(answer.sender, answer.result), answer.age_seconds))
        except BadResult as error:
            failed.append(
                Failed(answer.sender, "bad_result", f"its reply does not have the shape of this command: {error}")
            )
    if failed:
        failed = sorted([*outcome.failed, *failed], key=lambda each: each.sender)
    return FanOut(answers, failed or outcome.failed, outcome.stopped)


def storage(_sender: str, result: JsonObject) -> StorageRow:
    return storage_row(result)


def brokers(_sender: str, result: JsonObject) -> tuple[BrokerRow, ...]:
    return broker_rows(result)


def topics(_sender: str, result: JsonObject) -> tuple[TopicRow, ...]:
    return topic_rows(result)


def methods(_sender: str, result: JsonObject) -> tuple[MethodRow, ...]:
    return method_rows(result)


_COLUMNS = {
    "topic": TEXT,
    "partition": WHOLE,
    "start": WHOLE_OR_NONE,
    "committed": WHOLE_OR_NONE,
    "position": WHOLE_OR_NONE,
    "end": WHOLE_OR_NONE,
    "last_timestamp": NUMBER_OR_NONE,
    "generation": WHOLE_OR_NONE,
    "age_seconds": NUMBER_OR_NONE,
}
_row_of: Callable[[tuple[Any, ...]], PartitionRow] = partial(tuple.__new__, PartitionRow)
"""Without a step in Python: there may be a hundred thousand."""


def partitions(sender: str, result: JsonObject) -> tuple[PartitionRow, ...]:
    """The rows of `kafka_lag` and `offset_checker`."""
    columns = fields.columns(result, "rows", _COLUMNS)
    topic, partition, start, committed, position, end, timestamp, generation, age = columns
    ages = [inf if each is None else each for each in age]
    sent = (topic, partition, start, committed, position, end, timestamp, repeat(sender), generation, ages)
    return tuple(map(_row_of, zip(*sent, repeat(PartitionRow._field_defaults["reset"]), repeat(None))))
