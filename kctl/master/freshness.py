"""Gaps of an answer: stale agents, storages and brokers' offsets, and unknown values. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kctl.reduce.base import Freshness
from kctl.rows.columns import Reals
from kctl.rpc.fan_out import Failed
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.replies.questions import QUESTIONS

STALE_SECONDS = 5.0
"""Maximum age of an agent's snapshot, a storage's count, and a main thread's turn."""

BROKERS = "brokers"

_MOST_NAMES = 5
_NONE: Reals = np.empty(0)


def gaps(rpc: str, brokers: Freshness, ages: Reals = _NONE, unknown: Sequence[str] = ()) -> tuple[Failed, ...]:
    """`ages`: the ages of the answer's partitions; `unknown`: partitions without a lag."""
    age = QUESTIONS[rpc].age
    if age == "rows":
        missing = [f"the lag of {name} is not known: the topic does not exist" for name in brokers.missing_topics]
        gaps = (*_unknown(unknown), *(Failed(BROKERS, "unknown", text) for text in missing))
        return (*(_stale_rows(ages, brokers) if len(ages) else _silent(brokers)), *gaps)
    return stale(brokers, brokers.age_seconds) if age == "brokers" else ()


def stale(brokers: Freshness, age_seconds: float | None) -> tuple[Failed, ...]:
    """`age_seconds` is None if the part was never answered in full."""
    if age_seconds is None:
        return _silent(brokers) or _never_complete(brokers)
    if age_seconds <= brokers.stale_after_seconds:
        return ()
    return (Failed(BROKERS, "stale", _because(f"the brokers' offsets are {age_seconds:.0f} s old", brokers)),)


def of_storage(storage: StorageReply) -> tuple[Failed, ...]:
    age = storage.age_seconds
    if storage.error is None and (age is None or age <= STALE_SECONDS):
        return ()
    counted = "could not be counted" if age is None else f"was last counted {age:.0f} s ago"
    return (Failed("storage", "stale", f"the storage {counted}" + (f": {storage.error}" if storage.error else "")),)


def _silent(brokers: Freshness) -> tuple[Failed, ...]:
    if brokers.age_seconds is not None:
        return ()
    return (Failed(BROKERS, "stale", _because("no broker has answered the master yet", brokers)),)


def _never_complete(brokers: Freshness) -> tuple[Failed, ...]:
    text = (
        f"the brokers have not answered everything yet, and what they answered last is {brokers.age_seconds:.0f} s old"
    )
    return (Failed(BROKERS, "stale", _because(text, brokers)),)


def _stale_rows(ages: Reals, brokers: Freshness) -> tuple[Failed, ...]:
    old = ages[ages > brokers.stale_after_seconds]
    if not len(old):
        return ()
    of = "" if len(old) == len(ages) else f" of {len(old)} of {len(ages)} partitions"
    text = f"the brokers' offsets{of} are up to {old.max():.0f} s old"
    return (Failed(BROKERS, "stale", _because(text, brokers)),)


def _unknown(partitions: Sequence[str]) -> tuple[Failed, ...]:
    if not partitions:
        return ()
    names = ", ".join(partitions[:_MOST_NAMES])
    more = f" and {len(partitions) - _MOST_NAMES} more" if len(partitions) > _MOST_NAMES else ""
    text = (
        f"the lag of {names}{more} is not known: no end was reported, or nothing is committed "
        "and no offset is known to begin at"
    )
    return (Failed(BROKERS, "unknown", text),)


def _because(text: str, brokers: Freshness) -> str:
    return text if brokers.error is None else f"{text}: {brokers.error}"
