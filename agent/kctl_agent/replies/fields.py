"""Declares fields of replies: their encoding, their column in the command line's tables, and their metric."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


# Here, so that the command line can import it without the replies.
@dataclass(frozen=True, slots=True)
class TopicPartition:
    """A partition of Kafka."""

    topic: str
    partition: int


class FieldMetric(NamedTuple):
    """The metric of a field. The name of a counter ends with `_total`."""

    name: str
    sentence: str
    label: tuple[str, str] | None = None
    """Given if several fields share a metric; the first has the sentence."""
    is_limit: bool = False
    """A limit of 0 means no limit, and has no sample."""


def value(*metric: Any, is_limit: bool = False, **shown: Any) -> Any:
    """Declares a field. `metric` has the arguments of `FieldMetric`. `shown` becomes the field's metadata, such as
    its `column` in `kctl rpc workers -o wide`, and its `digits` after the decimal point."""
    if metric:
        shown["metric"] = FieldMetric(*metric)._replace(is_limit=is_limit)
    return field(default=None, metadata=shown)


def age(*metric: Any) -> Any:
    """Declares an age in seconds. `encoded` adds the time since the reply's snapshot."""
    return value(*metric, is_age=True)


def counter(*metric: Any) -> Any:
    """Declares a field that only grows while its process lives."""
    return value(*metric, is_counter=True)


def optional() -> Any:
    """Declares a field that the JSON omits while it is None."""
    return field(default=None, metadata={"is_left_out": True})
