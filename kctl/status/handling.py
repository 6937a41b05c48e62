"""Finds long handler calls, a failing handler, new dead letters and messages that have waited too long. Pure."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kctl.rows.verdict import Level
from kctl.status.unhandled import Unhandled
from kctl_agent.replies.block_size import RECENT_DEAD_COUNTED, RECENT_DEAD_SECONDS, StorageReply
from kctl_agent.replies.workers import SinkerStats
from kctl_agent.rpc.messages import number_of

_LEAST_CALL_SECONDS = 10.0
_USUAL_CALLS = 5.0
_LEAST_TRIES = 20
_MOST_FAILURES = 0.05
_FAILING_SECONDS = 30.0  # how long a handler may fail, for example during a short outage
_NAMED = 3


class Found(NamedTuple):
    level: Level
    about: str
    what: str  # the problem, without numbers that change
    why: str | None = None
    seconds: float = 0.0  # how long the problem has lasted


def calls(sinkers: Mapping[str, SinkerStats]) -> Iterator[Found]:
    """Finds handler calls that run much longer than usual."""
    seconds = {name: stats.call_seconds or 0.0 for name, stats in sinkers.items()}
    long = [name for name, stats in sinkers.items() if seconds[name] > _limit_seconds(stats)]
    if long:
        share = f"in {len(long)} of {number_of(len(sinkers), 'sinker')}"
        calls = [f"{name}'s call has been running for {seconds[name]:.0f} s" for name in long[:_NAMED]]
        more = [f"{len(long) - _NAMED} more"] if len(long) > _NAMED else []
        limit = f"the limit is {_limit_seconds(sinkers[long[0]]):.0f} s; `kctl stack {long[0]}` shows where it is"
        what, why = f"{_handler(sinkers)} has not returned {share}", "; ".join((*calls, *more, limit))
        yield Found(Level.DEGRADED, "handler calls", what, why, max(seconds[name] for name in long))


def tries(sinkers: Mapping[str, SinkerStats], storage: StorageReply) -> Iterator[Found]:
    """Finds a failing handler. Either many tries of the last minute failed, or all tries of a sinker have failed for
    over 30 s while messages are pending."""
    count = sum(each.recent_tries or 0 for each in sinkers.values())
    failures = {name: stats.recent_failures or 0 for name, stats in sinkers.items()}
    failed = sum(failures.values())
    classes = sorted({each.error_class for each in sinkers.values() if each.error_class})
    why = ", ".join((f"{failed} of {count} tries failed in the last minute", *classes))
    why += f"; `kctl logs {max(failures, key=failures.__getitem__)}` shows more" if failures else ""
    if count >= _LEAST_TRIES and failed > _MOST_FAILURES * count:
        yield Found(Level.DEGRADED, "handler", f"{_handler(sinkers)} has failed too often", why)
        return
    failing = [seconds for each in sinkers.values() if (seconds := each.failing_seconds or 0.0) > _FAILING_SECONDS]
    if failing and (storage.pending or storage.processing):
        share = f"{len(failing)} of {number_of(len(sinkers), 'sinker')} {'has' if len(failing) == 1 else 'have'}"
        what = "no message was handled" if len(failing) == len(sinkers) else f"{share} handled no message"
        yield Found(Level.DEGRADED, "handler", what, why, min(failing))


def dead_letters(storage: StorageReply) -> Iterator[Found]:
    recent = storage.recent_dead
    if recent is None or recent.last_seconds is None or recent.last_seconds > RECENT_DEAD_SECONDS:
        return
    of_class = f", {recent.error_class}" if recent.error_class else ""
    count = f"{'at least ' if recent.count >= RECENT_DEAD_COUNTED else ''}{recent.count}"
    why = f"{count} in {RECENT_DEAD_SECONDS / 60:.0f} minutes{of_class}: `kctl storage dead groups` lists them"
    yield Found(Level.DEGRADED, "dead letters", "messages have become dead letters", why, recent.first_seconds or 0.0)


def _handler(sinkers: Mapping[str, SinkerStats]) -> str:
    return " ".join(("the handler", *sorted({each.handler for each in sinkers.values() if each.handler})))


def _limit_seconds(stats: SinkerStats) -> float:
    return max(_LEAST_CALL_SECONDS, _USUAL_CALLS * (stats.handler_p99_seconds or 0.0))


def stored_words(storage: StorageReply) -> str | None:
    """Describes how many messages are in the storage. Returns None if the number is 0 or unknown."""
    count = (storage.pending or 0) + (storage.processing or 0)
    if not count:
        return None
    delayed = f", {storage.delayed} of them for their next try" if storage.delayed else ""
    return f"{number_of(count, 'message')} wait{'s' if count == 1 else ''} in the storage{delayed}"


def late(unhandled: Unhandled, storage: StorageReply) -> Iterator[Found]:
    """Yields a finding if the fleet's oldest unhandled message is too old."""
    if unhandled.is_late:
        limit = f"the limit (status.oldest_limit) is {unhandled.limit_seconds:.0f} s"
        why = "; ".join(filter(None, (f"{_oldest(unhandled)}, {limit}", stored_words(storage))))
        yield Found(Level.DEGRADED, "unhandled", "messages have waited too long", why)


def progress_words(unhandled: Unhandled, storage: StorageReply) -> Iterator[str]:
    if unhandled.is_catching_up:
        yield f"catching up: {_oldest(unhandled)}"
    if (stored := stored_words(storage)) is not None:
        yield stored


def _oldest(unhandled: Unhandled) -> str:
    if unhandled.seconds is None:
        return "the age of the oldest unhandled message is not known now"
    return f"the oldest unhandled message is {unhandled.seconds:.0f} s old"
