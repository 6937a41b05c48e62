from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kctl.errors import OperationRefused
from kctl.kafka import mirror
from kctl.kafka.consume import Record
from kctl.kafka.offsets import EARLIEST, LATEST


def test_a_message_behind_too_many_of_its_time_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Record("orders", 0, each, 7, None, b"%d" % each, ()) for each in range(10)]

    def read(_topic: str, begin: Mapping[int, int], end: Mapping[int, int] | None) -> Iterator[Record]:
        return iter(records[begin[0] : (end or {})[0]])

    def offsets(_connection: Any, _topics: Any, keys: list[Any], at: int) -> dict[Any, Any]:
        return {key: SimpleNamespace(offset={EARLIEST: 0, LATEST: 10}.get(at, 0), error=None) for key in keys}

    monkeypatch.setattr(mirror, "log_offsets", offsets)
    connection: Any = SimpleNamespace(deadline=SimpleNamespace(renew=lambda: None))
    cluster = mirror.Cluster(connection, {}, read)
    assert mirror.translated(cluster, cluster, ("orders", 0), 10) == 10
    monkeypatch.setattr(mirror, "_SEARCHED", 5)
    with pytest.raises(OperationRefused, match="not among the first 5 messages of its time: use --offsets"):
        mirror.translated(cluster, cluster, ("orders", 0), 10)
