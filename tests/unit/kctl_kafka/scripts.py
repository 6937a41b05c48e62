from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kctl.kafka.client.access import plain
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import Partition
from tests.servers.scripted_broker import Answers, Script, ScriptedBroker

LOADING = 14
NOT_COORDINATOR = 16
NOT_AUTHORISED = 30
SOON = 2.0  # seconds of a connection in tests that wait until its deadline
LONG = 120.0  # for tests with `soon_over`, which ends the time after a number of tries


@contextmanager
def connection_to(
    script: Script, *, seconds: float = 10.0, topics: Mapping[str, int] | None = None, has_retries: bool = True
) -> Iterator[tuple[ScriptedBroker, ClusterConnection]]:
    with (
        ScriptedBroker(script, topics=topics) as broker,
        ClusterConnection(plain(broker.address), seconds, has_retries=has_retries) as connection,
    ):
        connection.open(list(topics or ()))
        yield broker, connection


def described(*groups: Mapping[str, Any]) -> Answers:
    known = {group["group_id"]: group for group in groups}
    dead = {"group_state": "Dead"}
    return Answers(lambda request: {"groups": [known.get(g, {"group_id": g, **dead}) for g in _names(request)]})


def group(name: str, *, state: str = "Stable", code: int = 0, members: Sequence[Mapping[str, Any]] = ()) -> Any:
    return {
        "group_id": name,
        "error_code": code,
        "group_state": state,
        "protocol_type": "consumer",
        "protocol_data": "range",
        "members": members,
    }


def member(name: str, **assigned: Sequence[int]) -> Any:
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

    topics = [
        ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=list(partitions))
        for topic, partitions in assigned.items()
    ]
    assignment = ConsumerProtocolAssignment(assigned_partitions=topics, user_data=None, version=1)
    return {
        "member_id": f"{name}-1",
        "client_id": name,
        "client_host": "/127.0.0.1",
        "member_metadata": b"",
        "member_assignment": bytes(assignment.encode()),
    }


def fetched(groups: Mapping[str, Mapping[Partition, int] | int]) -> Answers:
    def one(asked: Any) -> dict[str, Any]:
        known = groups.get(asked.group_id, {})
        if isinstance(known, int):
            return {"group_id": asked.group_id, "error_code": known, "topics": []}
        wanted = [(topic.name, number) for topic in asked.topics or () for number in topic.partition_indexes]
        offsets = known if asked.topics is None else {key: known.get(key, -1) for key in wanted}
        return {"group_id": asked.group_id, "topics": by_topic(offsets, "committed_offset", metadata="")}

    return Answers(lambda request: {"groups": [one(each) for each in request.groups]})


def listed_offsets(offsets: Mapping[Partition, int], codes: Mapping[Partition, int] | None = None) -> Answers:
    def fields(request: Any) -> dict[str, Any]:
        wanted = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
        topics = by_topic({key: offsets.get(key, -1) for key in wanted}, "offset", timestamp=-1)
        for topic in topics:
            for each in topic["partitions"]:
                each["error_code"] = (codes or {}).get((topic["name"], each["partition_index"]), 0)
        return {"topics": topics}

    return Answers(fields)


def refused_coordinator(name: str) -> Answers:
    def fields(request: Any) -> dict[str, Any]:
        found = {"node_id": 1, "error_code": 0}
        refused = {"node_id": -1, "error_code": NOT_AUTHORISED}
        return {
            "coordinators": [{"key": key, **(refused if key == name else found)} for key in request.coordinator_keys]
        }

    return Answers(fields)


def committed_codes(code: int) -> Answers:
    def fields(request: Any) -> dict[str, Any]:
        keys = {(topic.name, each.partition_index): code for topic in request.topics for each in topic.partitions}
        return {"topics": by_topic(keys, "error_code")}

    return Answers(fields)


def by_topic(values: Mapping[Partition, int], name: str, **more: Any) -> list[dict[str, Any]]:
    topics = sorted({topic for topic, _ in values})
    return [
        {
            "name": topic,
            "partitions": [
                {"partition_index": number, name: value, **more}
                for (of, number), value in sorted(values.items())
                if of == topic
            ],
        }
        for topic in topics
    ]


def _names(request: Any) -> list[str]:
    return list(getattr(request, "group_ids", None) or request.groups)
