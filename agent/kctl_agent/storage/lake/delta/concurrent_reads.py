"""Reading of a log that others write and clean up meanwhile: a listing may lack an entry that is written at the same
time, and what it has may be gone when it is opened. Listed once more, it is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

__all__ = ["read_again"]

ATTEMPTS = 5

T = TypeVar("T")


def read_again(read: Callable[[], T], *raced: type[Exception]) -> T:
    """What `read` returns, which is called again where it raises one of these: delta-rs has DeltaError alone for a
    listing that lacks something. Raises what the last try does."""
    for _ in range(ATTEMPTS - 1):
        try:
            return read()
        except raced:
            continue
    return read()
