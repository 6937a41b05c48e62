"""The questions to a fleet, declared once for agents (`getXxx`), the master (`onXxx`), HTTP and `kctl rpc`.

Questions change nothing. A Question names types and functions by import path, so a command imports only what it needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final, NamedTuple

_REPLIES = "kctl_agent.replies"
_REDUCERS = "kctl.reduce.base"


class Question(NamedTuple):
    """A question, and how the master combines the replies. Without a `reducer`, the master joins the rows of all
    replies. If rows have the same `key`, the master keeps only the newest."""

    title: str
    summary: str
    reply: str
    reducer: str = ""
    """Reduces all replies to one answer (`kctl.reduce.base.Reducer`)."""
    answer: str = ""
    """The master's answer on the wire; empty: that of the reply."""
    view: str = ""
    """Selects what is sent of a reduced answer; empty: all of it."""
    rows: str = "rows"
    key: tuple[str, ...] = ()
    """Fields that identify and sort rows; each is a `str` or an `int`, never None."""
    kinds: tuple[str, ...] = ("worker",)
    """Attached applications answer the same questions as workers."""
    not_yet: str = ""
    """Why a process has no reply yet, as text after its name; empty: an empty reply is correct."""
    age: str = ""
    """What else may make the answer stale: `rows` (their own ages), `brokers` (the age of their last answer)."""
    path: str = ""
    """The HTTP resource below /api/v1; the collector keeps its answer."""
    path_summary: str = ""
    filters: Mapping[str, str] = {}
    """Query parameters of the resource that select rows -> the field they compare."""

    @property
    def sent(self) -> str:
        return self.answer or self.reply


def named(path: str) -> Any:
    """Imports the type or function that a Question names. Never pass a `path` from a request."""
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)


QUESTIONS: Final[Mapping[str, Question]] = {
    "kafka_lag": Question(
        "How many messages are pending in Kafka, in total and per topic",
        "lag of each assigned partition, and its offsets",
        f"{_REPLIES}.partitions.PartitionsReply",
        "kctl.reduce.partitions.offset_checker",
        "kctl.rows.partitions.LagTotals",
        "kctl.reduce.partitions.kafka_lag",
        age="rows",
    ),
    "offset_checker": Question(
        "How far each partition has been read, and by which worker",
        "start, committed, position and end offset of each assigned partition",
        f"{_REPLIES}.partitions.PartitionsReply",
        "kctl.reduce.partitions.offset_checker",
        "kctl.rows.partitions.Offsets",
        age="rows",
    ),
    "block_size": Question(
        "How many messages are pending in the storage",
        "messages and bytes in the storage: pending, delayed, processing, dead; the limits",
        f"{_REPLIES}.block_size.StorageReply",
        f"{_REDUCERS}.block_size",
        kinds=("worker", "sinker"),
        not_yet="has not opened its storage",
        path="storage",
        path_summary="Messages and bytes in the storage, and its limit",
    ),
    "member_leader": Question(
        "The leader of the consumer group, and its members",
        "member id, generation, leader, assigned partitions",
        f"{_REPLIES}.partitions.MemberReply",
        f"{_REDUCERS}.member_leader",
        "kctl.rows.workers.GroupMembers",
        rows="members",
        key=("worker",),
        not_yet="has not joined its consumer group",
        age="brokers",
        path="members",
        path_summary="The members of the group, by their own reports, and their leader",
        filters={"worker": "worker"},
    ),
    "metadata_brokers": Question(
        "The Kafka brokers",
        "node id, host, port, rack of each broker; which is the controller",
        f"{_REPLIES}.partitions.BrokersReply",
        key=("node_id",),
        not_yet="has no metadata from a broker",
        age="brokers",
        path="brokers",
        path_summary="The brokers of the cluster",
    ),
    "metadata_topics": Question(
        "Leader and replicas of each partition",
        "leader, replicas, in-sync and offline replicas of each partition",
        f"{_REPLIES}.partitions.TopicsReply",
        key=("topic", "partition"),
        not_yet="has no metadata from a broker",
        age="brokers",
        path="topics",
        path_summary="Leader and replicas of each partition",
        filters={"topic": "topic"},
    ),
    "workers": Question(
        "What each worker is doing",
        "state, uptime, memory, query, last batch, rows per second, last error, events",
        f"{_REPLIES}.workers.WorkerReply",
        f"{_REDUCERS}.workers",
        "kctl.rows.workers.Workers",
        key=("name",),
        kinds=("worker", "sinker", "engine"),
        path="workers",
        path_summary="Workers and sinkers: their own reports, and their supervisor's view",
        filters={"worker": "name", "kind": "kind", "state": "state"},
    ),
    "ping": Question(
        "The processes that answer",
        "name, pid, version, state, progress",
        f"{_REPLIES}.workers.PingReply",
        f"{_REDUCERS}.ping",
        "kctl.rows.workers.Pings",
        kinds=("worker", "sinker", "engine"),
    ),
    "describe": Question(
        "The available methods",
        "every method with its parameters, deadline and effect",
        f"{_REPLIES}.describe.MethodsReply",
        rows="methods",
        key=("method",),
        kinds=("worker", "sinker", "engine"),
    ),
}
"""In the order of the help page. A name from the wire is only a key of it."""


def asked_of(kind: str) -> frozenset[str]:
    return frozenset(name for name, each in QUESTIONS.items() if kind in each.kinds)
