from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.settings import KafkaSettings
from tests.servers.scripted_broker import Answers, Script, ScriptedBroker
from tests.unit.kctl_kafka.scripts import by_topic, fetched, listed_offsets
from tests.unit.worker.offsets.broker_answers import EVERYTHING, TOPICS


def committed(codes: Mapping[str, int] = {}) -> Answers:
    def fields(request: Any) -> dict[str, Any]:
        wanted = {(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions}
        return {"topics": by_topic({key: codes.get(key[0], 0) for key in wanted}, "error_code")}

    return Answers(fields)


def rejected(code: int) -> Answers:
    return committed(dict.fromkeys(TOPICS, code))


def group_script(answers: Script) -> Script:
    return {
        "JoinGroup": Answers(_joined),
        "SyncGroup": Answers(lambda request: {"assignment": request.assignments[0].assignment}),
        "Heartbeat": Answers(),
        "LeaveGroup": Answers(),
        "OffsetFetch": fetched({}),
        "ListOffsets": listed_offsets(dict.fromkeys(map(tuple, EVERYTHING), 0)),
        **answers,
    }


def has_settled(broker: ScriptedBroker) -> bool:
    asked = broker.asked
    since = len(asked) - asked[::-1].index("JoinGroup") if "JoinGroup" in asked else len(asked)
    return asked[since:].count("Heartbeat") >= 3


@contextmanager
def joining(
    answers: Script, assignor: str = "range", listener: Mapping[str, Callable[..., Any]] = {}
) -> Iterator[tuple[ScriptedBroker, Membership]]:
    """The membership has not polled yet. `answers` extend the coordinator's script."""
    with ScriptedBroker(group_script(answers), topics=TOPICS) as broker:
        member = Membership(
            replace(member_settings(broker.address), assignor=assignor),
            "worker-0",
            listener.get("on_revoked", lambda _: {}),
            listener.get("on_lost", lambda: None),
            listener.get("on_committed", lambda _: None),
        )
        try:
            yield broker, member
        finally:
            member.close()


@contextmanager
def scripted_group(answers: Script, **listener: Callable[..., Any]) -> Iterator[tuple[ScriptedBroker, Membership]]:
    with joining(answers, listener=listener) as (broker, member):
        poll_until(member, lambda: member.partitions == EVERYTHING)
        yield broker, member


def poll_until(member: Membership, is_so: Callable[[], bool]) -> None:
    while not is_so():
        member.poll(0.05)


def _joined(request: Any) -> dict[str, Any]:
    protocol = request.protocols[0]
    return {
        "generation_id": 1,
        "protocol_name": protocol.name,
        "protocol_type": "consumer",
        "leader": "worker-0-1",
        "member_id": "worker-0-1",
        "members": [{"member_id": "worker-0-1", "metadata": protocol.metadata}],
    }


def member_settings(address: str) -> KafkaSettings:
    return KafkaSettings(address, "billing", tuple(TOPICS), "earliest", "range", 30.0, 0.1, "read_committed", None)
