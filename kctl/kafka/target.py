"""Parses the target of a reset: `earliest`, `latest`, an offset, a time or `shift-by -100`."""

from collections.abc import Sequence
from typing import NamedTuple

from kctl.errors import UsageError
from kctl.fields import unix_seconds


class Target(NamedTuple):
    """A position in a log. `earliest` and `latest` have no `number`. For other kinds, `number` is an offset (`offset`),
    milliseconds (`time`), a difference (`shift`) or the distance to the end (`last`)."""

    kind: str
    number: int = 0

    def within(self, start: int, end: int, found: int | None = None, committed: int = 0) -> int:
        """Returns the position as an offset inside a log. For the kind `time`, `found` is the offset of the first
        message at or after this time. If there is none, pass None to get `end`. A `shift` counts from `committed`."""
        places = {
            "earliest": start,
            "latest": end,
            "offset": self.number,
            "time": end if found is None else found,
            "shift": committed + self.number,
            "last": end - self.number,
        }
        return min(max(places[self.kind], start), end)


def target(words: Sequence[str]) -> Target:
    """Parses a position, or `shift-by -100`. Raises UsageError."""
    if len(words) == 2 and words[0] == "shift-by" and is_whole(words[1][words[1].startswith(("+", "-")) :]):
        return Target("shift", int(words[1]))
    return position(" ".join(words), "shift-by N")


def position(word: str, beside: str = "") -> Target:
    """Parses `earliest`, `latest`, `1200`, `2026-11-21T10:00:00Z` or `@1795255200000`. The error message also lists
    `beside`, which the caller accepts. Raises UsageError."""
    if word in ("earliest", "latest"):
        return Target(word)
    if is_whole(word):
        return Target("offset", int(word))
    if word.startswith("@") or (word[:1].isdecimal() and "-" in word.split(" ")[0]):
        return Target("time", milliseconds(word))
    time = "a time such as 2026-11-21T10:00:00Z or @MILLISECONDS"
    known = ["earliest", "latest", "an offset", time, *([beside] if beside else [])]
    raise UsageError(f"`{word}` is not a position: use {', '.join(known[:-1])}, or {known[-1]}")


def milliseconds(word: str) -> int:
    """Parses `@1795255200000` or an ISO 8601 time. A time without a zone is UTC. Raises UsageError."""
    digits = word.removeprefix("@")
    if is_whole(digits):
        return int(digits)
    from datetime import datetime  # takes a millisecond, which only times need

    try:
        return int(unix_seconds(datetime.fromisoformat(word)) * 1000)
    except ValueError:
        raise UsageError(
            f"`{word}` is not a time: use ISO 8601, such as 2026-11-21T10:00:00Z, or @MILLISECONDS"
        ) from None


def topic_and_partitions(word: str) -> tuple[str, list[int] | None]:
    """Parses `orders` or `orders:0,2`. The list is None for all partitions. Raises UsageError."""
    topic, colon, numbers = word.partition(":")
    if not colon:
        return topic, None
    parts = numbers.split(",")
    if not topic or not all(is_whole(part) for part in parts):
        raise UsageError(f"`{word}` is not a topic with partitions: write it as orders:0,2")
    return topic, sorted({int(part) for part in parts})


def is_whole(word: str) -> bool:
    """Whether `word` is a whole number that Kafka's 64 bits can hold."""
    return word.isdecimal() and len(word) < 20 and int(word) < 1 << 63
