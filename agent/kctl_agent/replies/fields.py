"""Declarations of a reply's fields beyond name and type: how one is encoded, and where people see it.

The command line derives columns from it, the exporter metrics. Each field is None unless it is given.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any, NamedTuple

__all__ = ["FieldMetric", "age", "counter", "optional", "value"]


class FieldMetric(NamedTuple):
    """The metric of a field; a counter's name ends with `_total`."""

    name: str
    sentence: str
    label: tuple[str, str] | None = None
    """Name and value of a label, where several fields make one metric; the first has its sentence."""
    is_limit: bool = False
    """Whether the field is a limit: 0 is none, and has no sample."""


def value(**shown: Any) -> Any:
    """A field of a reply that is seen elsewhere too: `metric`, and `column`, a heading of `kctl rpc workers -o wide`,
    with `digits` behind the point."""
    return field(default=None, metadata=shown)


def age(**shown: Any) -> Any:
    """A field of seconds that pass while a reply is kept: for how long something has been so."""
    return field(default=None, metadata={"is_age": True, **shown})


def counter(**shown: Any) -> Any:
    """A field that only grows while its process lives."""
    return field(default=None, metadata={"is_counter": True, **shown})


def optional() -> Any:
    """A field that the JSON leaves out while it is None: not every reply of its kind has it."""
    return field(default=None, metadata={"is_left_out": True})
