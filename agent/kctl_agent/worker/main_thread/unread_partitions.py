"""Events about partitions that are assigned and not read, or read by a query of their own: when each begins and ends.

For one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from kafka import TopicPartition

__all__ = ["UnreadPartitions"]

Reasons = Mapping[TopicPartition, str]


class Listener(Protocol):
    """`worker.stats`, as far as it is needed here."""

    def happened(self, kind: str, text: str, tp: TopicPartition | None = None) -> None: ...

    def leaves_out(self, reasons: Reasons) -> None: ...

    def isolates(self, reasons: Reasons) -> None: ...


class UnreadPartitions:
    """Publishes what has changed since the last call."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._left_out: Reasons = {}
        self._isolated: Reasons = {}

    def left_out(self, reasons: Reasons) -> None:
        """These are left out, for longer than an election takes, and why."""
        before, self._left_out = self._left_out, reasons
        begun: tuple[str, Sentence] = (
            "partition_left_out",
            lambda name, why: f"{name} is not read: {why}; the other partitions are",
        )
        ended: tuple[str, Sentence] = ("partition_taken_in", lambda name, _: f"{name} is left out no more")
        if self._publish(before, reasons, begun, ended):
            self._listener.leaves_out(reasons)

    def isolated(self, reasons: Reasons) -> None:
        """The query of each of these fails although it is alone in it, and why."""
        before, self._isolated = self._isolated, reasons
        begun: tuple[str, Sentence] = (
            "partition_isolated",
            lambda name, why: f"{name} is read by a query of its own, which fails: {why}",
        )
        ended: tuple[str, Sentence] = ("partition_released", lambda name, _: f"{name} is isolated no more")
        if self._publish(before, reasons, begun, ended):
            self._listener.isolates(reasons)

    def _publish(self, before: Reasons, now: Reasons, begun: tuple[str, Sentence], ended: tuple[str, Sentence]) -> bool:
        """False: nothing has changed."""
        changes = ((now.keys() - before.keys(), now, begun), (before.keys() - now.keys(), before, ended))
        for partitions, reasons, (kind, sentence) in changes:
            for tp in sorted(partitions):
                self._listener.happened(kind, sentence(f"{tp.topic}-{tp.partition}", reasons[tp]), tp)
        return before != now


Sentence = Callable[[str, str], str]
"""Of a partition's name and the reason."""
