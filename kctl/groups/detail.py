"""The detail of each group's series: partitions, topics, or the group alone. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kctl.groups.filters import fits
from kctl.groups.snapshot import Detail, GroupSnapshot

__all__ = ["bounded", "detail_of"]


def detail_of(without_partitions: Sequence[str], without_topics: Sequence[str]) -> Callable[[str], Detail]:
    """Returns the detail for the name of a group, by the patterns of `[exporter]`.

    Raises:
        ValueError: what stands between slashes is no regular expression.
    """
    no_partitions, no_topics = fits(without_partitions), fits(without_topics)

    def detail(group: str) -> Detail:
        if no_topics(group):
            return "group"
        return "topic" if no_partitions(group) else "partition"

    return detail


def bounded(groups: tuple[GroupSnapshot, ...], max_partitions: int) -> tuple[tuple[GroupSnapshot, ...], int]:
    """Returns the groups with series for at most so many partitions in all (0: any number), and how many were cut for
    it: those with the most partitions, the largest first, so that it is as few as will do."""
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
