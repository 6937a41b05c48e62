"""Consumers of kafka-python as members of a group."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from kafka import KafkaConsumer

from kctl_agent.kafka.clients import take_up_forgotten_join


@contextmanager
def member(servers: str, group: str, topic: str, **more: object) -> Iterator[KafkaConsumer]:
    """Waits until the member has its partitions. `more` are settings of the client."""
    given = {"bootstrap_servers": servers, "group_id": group, "enable_auto_commit": False, **more}
    with closing(KafkaConsumer(topic, **given)) as consumer:
        until_assigned(consumer)
        yield consumer


def until_assigned(consumer: KafkaConsumer) -> None:
    while not consumer.assignment():
        take_up_forgotten_join(consumer)
        consumer.poll(100)
