"""Filters of groups and topics by patterns of their names, and the detail of each group's series. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import translate
from functools import lru_cache

from kctl.groups.snapshot import Detail, GroupSnapshot

_KEPT_NAMES = 200_000


def fits(patterns: Sequence[str]) -> Callable[[str], bool]:
    """A pattern is a glob such as `payments-*`, or a regular expression for the whole name between slashes, such as
    `/payments-(eu|us)/`. Caches results. Raises ValueError for an invalid regular expression."""
    if not patterns:
        return lambda _: False
    expression = re.compile("|".join(f"(?:{_compiled(pattern).pattern})" for pattern in patterns), re.DOTALL)
    return lru_cache(_KEPT_NAMES)(lambda name: expression.fullmatch(name) is not None)


class NameFilter:
    def __init__(self, allow: Sequence[str] = ("*",), deny: Sequence[str] = ()) -> None:
        self._allows_all = "*" in allow
        self._allows, self._denies = fits(allow), fits(deny)

    def __call__(self, name: str) -> bool:
        return (self._allows_all or self._allows(name)) and not self._denies(name)


def _compiled(pattern: str) -> re.Pattern[str]:
    if len(pattern) > 1 and pattern.startswith("/") and pattern.endswith("/"):
        try:
            return re.compile(pattern[1:-1])
        except re.error as error:
            raise ValueError(f"{pattern} is no regular expression: {error}") from None
    return re.compile(translate(pattern))


def detail_of(without_partitions: Sequence[str], without_topics: Sequence[str]) -> Callable[[str], Detail]:
    """Returns a function that gives the detail of a group's series, by the patterns of `[exporter]`. Raises
    ValueError."""
    no_partitions, no_topics = fits(without_partitions), fits(without_topics)

    def detail(group: str) -> Detail:
        if no_topics(group):
            return "group"
        return "topic" if no_partitions(group) else "partition"

    return detail


def bounded(groups: tuple[GroupSnapshot, ...], max_partitions: int) -> tuple[tuple[GroupSnapshot, ...], int]:
    """Limits the number of partitions with series (0: no limit); also returns the number of groups cut. Cuts the
    largest groups first, to cut as few as possible."""
    shown = [group for group in groups if group.detail == "partition"]
    left = sum(len(group.partitions) for group in shown) - max_partitions
    if max_partitions == 0 or left <= 0:
        return groups, 0
    cut = set()
    for group in sorted(shown, key=lambda each: (-len(each.partitions), each.group)):
        if left <= 0:
            break
        cut.add(group.group)
        left -= len(group.partitions)
    return tuple(replace(each, detail="topic") if each.group in cut else each for each in groups), len(cut)
