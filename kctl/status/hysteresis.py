"""Worse is reported at once, better only when it lasts: a status that comes and goes would ring and silence alerts."""

from __future__ import annotations

from dataclasses import dataclass

from kctl.status.rules import Judgement
from kctl.status.words import Status

__all__ = ["Reported", "settle"]

_TROUBLE = Status.WARN.severity


@dataclass(frozen=True, slots=True)
class Reported:
    """The status that is reported, and since when the rules have seen a better one."""

    judgement: Judgement
    better_since: float | None = None


def settle(
    reported: Reported | None, judged: Judgement, now: float, hold_seconds: float, *, is_blind: bool = False
) -> Reported:
    """What is reported from now on. From trouble (`warn` and worse) to anything better it takes `hold_seconds`; the
    reason is then "not yet over". Rules that no longer know (`unknown`) are believed at once, unless `is_blind`:
    trouble is not over because nothing is seen any more."""
    if (
        reported is None
        or judged[0].severity >= reported.judgement[0].severity
        or reported.judgement[0].severity < _TROUBLE
    ):
        return Reported(judged)
    if is_blind:
        return Reported((reported.judgement[0], f"not seen to be over: {judged[1]}"))
    if judged[0] is Status.UNKNOWN:
        return Reported(judged)
    since = now if reported.better_since is None else reported.better_since
    if now - since >= hold_seconds:
        return Reported(judged)
    return Reported((reported.judgement[0], f"not yet over: {judged[1]}"), since)
