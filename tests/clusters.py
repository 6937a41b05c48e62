"""A real Kafka cluster of three brokers for a test, in a short temporary folder."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.servers.kafka_cluster import KafkaCluster


@contextmanager
def running_cluster(properties: Mapping[str, str]) -> Iterator[KafkaCluster]:
    """`properties` are the brokers' own, besides the cluster's."""
    folder = Path(tempfile.mkdtemp(prefix="b", dir="/tmp"))
    try:
        with KafkaCluster(folder, properties=properties) as running:
            yield running
    finally:
        shutil.rmtree(folder, ignore_errors=True)
