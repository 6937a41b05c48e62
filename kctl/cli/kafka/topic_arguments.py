"""Topics and partitions as words of a command line, which must exist."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kctl.kafka.target import topic_and_partitions

if TYPE_CHECKING:
    from kctl.kafka.client.connection import ClusterConnection
    from kctl.kafka.client.layout import Partition, Topic

__all__ = ["required_topics", "wanted_partitions"]


def required_topics(connection: ClusterConnection, names: list[str] | None) -> dict[str, Topic] | None:
    """Opens the connection; returns the topics that were named, which must exist; None when none was."""
    from kctl.kafka.client.layout import require, topics_of

    if not names:
        connection.open()
        return None
    topics = topics_of(connection.open(names))
    return {name: require(topics, name) for name in names}


def wanted_partitions(connection: ClusterConnection, words: list[str]) -> tuple[dict[str, Topic], list[Partition]]:
    """Opens the connection; returns the topics and partitions of `-t TOPIC[:0,2]`, which must exist."""
    from kctl.kafka.client.layout import require, topics_of

    chosen = [topic_and_partitions(word) for word in words]
    topics = topics_of(connection.open(sorted({name for name, _ in chosen})))
    wanted: set[Partition] = set()
    for name, numbers in chosen:
        all_of_it = require(topics, name)
        for number in numbers or ():
            require(topics, name, number)
        wanted |= {(name, number) for number in numbers or [each.partition for each in all_of_it.partitions]}
    return topics, sorted(wanted)
