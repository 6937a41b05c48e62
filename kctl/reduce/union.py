"""The union of lists that agents reply with: `onMetadataBrokers`, `onMetadataTopics`, `onDescribe`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any, TypeVar

from kctl.reduce.base import Answer, BrokerSnapshot, Reducer, newest_rows

R = TypeVar("R")


def union(kind: type[R], listed: str, *key: str) -> Reducer[R, R]:
    """The reducer of replies that hold but a list: its rows by their key, sorted by it; the newest answer wins."""
    make: Any = kind
    rows_of, key_of = attrgetter(listed), attrgetter(*key)

    def reduce(answers: Sequence[Answer[R]], _brokers: BrokerSnapshot) -> R:
        rows = newest_rows([answer.of(rows_of(answer.result)) for answer in answers], key_of)
        union_of_all: R = make(tuple(rows[each] for each in sorted(rows)))
        return union_of_all

    return reduce
