"""A partition's name: its topic and number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicPartition:
    """A partition by its topic and number."""

    topic: str
    partition: int
