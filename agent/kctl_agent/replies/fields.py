"""Declarations of a reply's fields beyond name and type: how one is encoded, and where people see it.

The command line derives columns from it, the exporter metrics. Each field is None unless it is given.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple


class FieldMetric(NamedTuple):
    """The metric of a field; a counter's name ends with `_total`."""

    name: str
    sentence: str
    label: tuple[str, str] | None = None
    """Name and value of a label, where several fields make one metric; the first has its sentence."""
    is_limit: bool = False
    """Whether the field is a limit: 0 is none, and has no sample."""


def value(*metric: Any, is_limit: bool = False, **shown: Any) -> Any:
    """A field of a reply that is seen elsewhere too: as a `FieldMetric` (name, sentence, label), and as `column`, a
    heading of `kctl rpc workers -o wide`, with `digits` behind the point."""
    if metric:
        shown["metric"] = FieldMetric(*metric)._replace(is_limit=is_limit)
    return field(default=None, metadata=shown)


def age(*metric: Any) -> Any:
    """A field of seconds that pass while a reply is kept: for how long something has been so."""
    return value(*metric, is_age=True)


def counter(*metric: Any) -> Any:
    """A field that only grows while its process lives."""
    return value(*metric, is_counter=True)


def optional() -> Any:
    """A field that the JSON leaves out while it is None: not every reply of its kind has it."""
    return field(default=None, metadata={"is_left_out": True})
