from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from kctl.errors import OperationRefused
from kctl.kafka import mirror
from kctl.kafka.consume import Record
from kctl.kafka.mirror import Cluster
from kctl.kafka.offsets import EARLIEST, LATEST, LogOffset

TIME = 7


def cluster(values: Sequence[str], start: int = 0) -> Cluster:
    """One partition with these values; all messages have one timestamp, except for those of value `later`."""
    records = [
        Record("orders", 0, offset, TIME + (value == "later"), None, value.encode(), ())
        for offset, value in enumerate(values, start)
    ]

    def read(_topic: str, begin: Mapping[int, int], end: Mapping[int, int] | None) -> Iterator[Record]:
        return (each for each in records if begin[0] <= each.offset < (end or {})[0])

    connection: Any = SimpleNamespace(
        deadline=SimpleNamespace(renew=lambda: None),
        offsets={EARLIEST: start, LATEST: start + len(values), TIME: start},
    )
    return Cluster(connection, {}, read)


@pytest.fixture(autouse=True)
def offsets_of_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    def log_offsets(connection: Any, _topics: Any, keys: list[Any], at: int) -> dict[Any, LogOffset]:
        return {key: LogOffset(connection.offsets[at]) for key in keys}

    monkeypatch.setattr(mirror, "log_offsets", log_offsets)


def translated(old: Cluster, new: Cluster, offset: int) -> int:
    return mirror.translated(old, new, ("orders", 0), offset)


@pytest.mark.parametrize("values", [["x", "x", "later"], ["x"] * 4])
def test_of_equal_messages_of_which_the_clusters_have_different_numbers_none_is_taken(values: list[str]) -> None:
    old = cluster(["x", "x", "x", "later"])

    for one, other in ((old, cluster(values)), (cluster(values), old)):
        with pytest.raises(OperationRefused, match=r"messages like that at offset 1, the new one .*: use `kctl kafka"):
            translated(one, other, 2)


def test_of_few_equal_messages_the_one_of_the_same_rank_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    old = cluster(["a", "x", "x", "x", "later"], start=100)
    assert translated(old, cluster(["a", "x", "b", "x", "x", "later"], start=5), 103) == 9

    log = cluster([str(number) for number in range(10)])
    assert translated(log, log, 10) == 10
    monkeypatch.setattr(mirror, "_SEARCHED", 5)
    with pytest.raises(OperationRefused, match="not among the first 5 messages of its time: use `kctl kafka"):
        translated(log, log, 10)
