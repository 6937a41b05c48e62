"""Filters of groups and topics, by patterns of their names. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import translate
from functools import lru_cache

__all__ = ["NameFilter", "fits"]

_KEPT_NAMES = 200_000


def fits(patterns: Sequence[str]) -> Callable[[str], bool]:
    """Returns whether any of the patterns fits a name: as a glob such as `payments-*`, or between slashes as a regular
    expression that must fit the whole name, such as `/payments-(eu|us)/`. Answers are kept: the same names are asked
    for again and again.

    Raises:
        ValueError: what stands between slashes is no regular expression.
    """
    if not patterns:
        return lambda _: False
    expression = re.compile("|".join(f"(?:{_compiled(pattern).pattern})" for pattern in patterns), re.DOTALL)
    return lru_cache(_KEPT_NAMES)(lambda name: expression.fullmatch(name) is not None)


class NameFilter:
    """A filter for names that are allowed and not denied."""

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
