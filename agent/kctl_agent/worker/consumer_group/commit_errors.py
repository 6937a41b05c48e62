"""Errors of an OffsetCommit response per partition; kafka-python 3.0.12 raises only the first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka import OffsetAndMetadata, TopicPartition
from kafka.errors import (
    InvalidCommitOffsetSizeError,
    KafkaError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)

PARTITION_ERRORS: dict[int, type[KafkaError]] = {
    error.errno: error
    for error in (
        InvalidCommitOffsetSizeError,
        OffsetMetadataTooLargeError,
        TopicAuthorizationFailedError,
        UnknownTopicOrPartitionError,
    )
}
"""Other errors concern the member, the group or its coordinator."""


class PendingCommit(dict[TopicPartition, OffsetAndMetadata]):
    refused: dict[TopicPartition, type[KafkaError]]

    def __init__(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        super().__init__(offsets)
        self.refused = {}


def keep_partition_errors(consumer: Any) -> None:
    """Collects errors of partitions in `PendingCommit.refused`; other errors are still raised."""
    coordinator = consumer._coordinator  # noqa: SLF001 - there is no public way to see the response
    handle = coordinator._handle_offset_commit_response  # noqa: SLF001

    def handle_offset_commit_response(offsets: Any, send_time: float, response: Any) -> None:
        if isinstance(offsets, PendingCommit):
            offsets.refused = _take_out(response)
        handle(offsets, send_time, response)

    coordinator._handle_offset_commit_response = handle_offset_commit_response  # noqa: SLF001


def _take_out(response: Any) -> dict[TopicPartition, type[KafkaError]]:
    refused = {}
    for topic in response.topics:
        for partition in topic.partitions:
            if error := PARTITION_ERRORS.get(partition.error_code):
                refused[TopicPartition(topic.name, partition.partition_index)] = error
                partition.error_code = 0
    return refused


def refusal(errors: Mapping[TopicPartition, type[KafkaError]]) -> str:
    named = ", ".join(f"{tp.topic}-{tp.partition} ({errors[tp].__name__})" for tp in sorted(errors))
    return f"the offsets of {named} cannot be committed"
