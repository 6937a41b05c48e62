"""How long a message waits until it is stored, by a worker that keeps up with what is produced.

Two queries of one worker's session, in turns: one as a worker starts it, one with Kafka's own wait of a fetch that
finds nothing (500 ms). Each round produces one message into each of `PARTITIONS` partitions and waits until all are
stored in a file storage. Spark runs one task at a time (`local[1]`), as where partitions are more than cores.

    python -m benchmarks.batch_latency [--rounds 20]

Prints one JSON line, `batch_latency`: medians in milliseconds from the last acknowledgement until all are stored, and
`ratio`, ours as a part of Kafka's own. Target: at most 0.5.
"""

import argparse
import json
import statistics
from queue import Queue
from time import perf_counter

from kafka import KafkaProducer, TopicPartition

from benchmarks._fleet import progress, running_broker, worker_settings, write_config
from kctl_agent.storage.base import Storage
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.kinds import open_storage
from kctl_agent.worker.query import kafka_source
from kctl_agent.worker.query import pipeline as worker
from kctl_agent.worker.query.kafka_source import KafkaSource
from kctl_agent.worker.query.run import Batch
from kctl_agent.worker.settings import WorkerSettings, parse
from tests.servers.topics import create_topic

PARTITIONS = 4
WARM_UP_ROUNDS = 10
TARGET_RATIO = 0.5
WAITS_MS = {"ours": kafka_source.FETCH_WAIT_MS, "kafkas": 500}
"""Topic to `fetch.max.wait.ms`."""
BATCH_SECONDS = 120.0


def main() -> None:
    parser = argparse.ArgumentParser(description="the time from produced to stored")
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    with running_broker() as (broker, place):
        for topic in WAITS_MS:
            create_topic(broker.bootstrap_servers, topic, PARTITIONS)
        config = write_config(place, broker.bootstrap_servers)
        given = worker_settings(config)
        given["spark"]["master"] = "local[1]"
        settings = parse(json.dumps(given))
        settings.scratch_dir.mkdir(parents=True)
        took = _measure(settings, rounds)
    median = {topic: statistics.median(each) * 1000 for topic, each in took.items()}
    ratio = median["ours"] / median["kafkas"]
    line = {
        "benchmark": "batch_latency",
        **{f"{topic}_ms": round(milliseconds, 1) for topic, milliseconds in median.items()},
        "ratio": round(ratio, 2),
        "target": TARGET_RATIO,
        "met": ratio <= TARGET_RATIO,
        "partitions": PARTITIONS,
        "rounds": rounds,
    }
    print(json.dumps(line), flush=True)


def _measure(settings: WorkerSettings, rounds: int) -> dict[str, list[float]]:
    storage = open_storage(settings.storage)
    storage.prepare()
    producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap_servers, acks="all")
    took: dict[str, list[float]] = {topic: [] for topic in WAITS_MS}
    queries = {topic: Query(topic, settings, storage) for topic in WAITS_MS}
    first = queries["ours"].pipeline
    first.open()
    try:
        queries["kafkas"].pipeline._driver = first._driver
        for topic, query in queries.items():
            query.start(WAITS_MS[topic])
        for number in range(WARM_UP_ROUNDS + rounds):
            for topic, query in queries.items():
                seconds = query.seconds_until_stored(producer)
                if number >= WARM_UP_ROUNDS:
                    took[topic].append(seconds)
            progress(f"round {number}: {', '.join(f'{topic} {query.last:.3f} s' for topic, query in queries.items())}")
        for query in queries.values():
            query.pipeline.stop(10.0)
    finally:
        producer.close()
        first.close()
    return took


class Query:
    """A worker's query over one topic."""

    def __init__(self, topic: str, settings: WorkerSettings, storage: Storage) -> None:
        self.partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        self.last = 0.0
        self._sent = 0
        self._batches: Queue[Batch] = Queue()
        storage.init_offsets([StoredOffset(topic, number, None, 0) for number in range(PARTITIONS)])
        self.pipeline = worker.Pipeline(settings, storage, self._batches.put)

    def start(self, fetch_wait_ms: int) -> None:
        ours, kafka_source.FETCH_WAIT_MS = kafka_source.FETCH_WAIT_MS, fetch_wait_ms
        try:
            self.pipeline.start({partition: KafkaSource(0, None, 1) for partition in self.partitions})
        finally:
            kafka_source.FETCH_WAIT_MS = ours

    def seconds_until_stored(self, producer: KafkaProducer) -> float:
        for partition in self.partitions:
            producer.send(partition.topic, b"x" * 200, partition=partition.partition)
        producer.flush()
        began = perf_counter()
        self._sent += 1
        while any(self.pipeline.positions[partition] < self._sent for partition in self.partitions):
            self._batches.get(timeout=BATCH_SECONDS)
        self.last = perf_counter() - began
        return self.last


if __name__ == "__main__":
    main()
