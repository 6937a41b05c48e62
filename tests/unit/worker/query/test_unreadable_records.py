from __future__ import annotations

import zlib

import pytest
from kafka import TopicPartition
from kafka.errors import CorruptRecordError

from kctl_agent.worker.query import unreadable_records
from kctl_agent.worker.settings import KafkaSettings


@pytest.mark.parametrize(
    "error", [CorruptRecordError("no UTF-8"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), zlib.error()]
)
def test_a_record_that_kafka_python_cannot_parse_is_no_dead_letter(
    error: Exception, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its partition stays isolated; other partitions continue."""

    def failing(*_: object) -> None:
        raise error

    monkeypatch.setattr(unreadable_records, "_records", failing)
    kafka = KafkaSettings("localhost:1", "g", ("t",), "earliest", "range", 6, 1, "read_committed", None)

    assert unreadable_records.unreadable_records(kafka, TopicPartition("t", 0), 7, is_wanted=True) == []

    assert "t-0 offset 7 cannot be read" in caplog.text
