"""Worse is reported at once, better only when it lasts: a status that comes and goes would ring and silence alerts."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.status.rules import Judgement
from kctl.status.words import Status

__all__ = ["Held", "settle"]

_TROUBLE = Status.WARN.severity


@dataclass(frozen=True, slots=True)
class Held:
    """The status that is reported, and since when the rules have seen a better one."""

    reported: Judgement
    better_since: float | None = None


def settle(held: Held | None, judged: Judgement, now: float, hold_seconds: float) -> Held:
    """What is reported from now on. From trouble (`warn` and worse) to anything better it takes `hold_seconds`; the
    reason is then "not yet over". Rules that no longer know (`unknown`) are believed at once."""
    if held is None or judged[0].severity >= held.reported[0].severity or held.reported[0].severity < _TROUBLE:
        return Held(judged)
    if judged[0] is Status.UNKNOWN:
        return Held(judged)
    since = now if held.better_since is None else held.better_since
    if now - since >= hold_seconds:
        return Held(judged)
    return Held((held.reported[0], f"not yet over: {judged[1]}"), since)
