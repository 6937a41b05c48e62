"""How long a message waits until it is stored, with many partitions and nothing between batches (trigger 0).

One broker, and a fleet of one worker with an engine as `kctl start` begins it, for each number of partitions. A
producer sends 4,000 messages a second to partitions in turn. A message waits from its timestamp, which the producer
gives it, to the time at which the file storage notes its block, in the transaction that stores it.

    python -m benchmarks.stored_latency [--partitions 8 400 1000] [--seconds 30] [--backlog 4000000]

Prints a JSON line for each: milliseconds, of what was sent in the last so many seconds; and for 400 partitions how many
rows a second four workers store of a backlog, between their first tenth and the last one.
"""

import argparse
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event
from time import monotonic, time

import numpy as np

from benchmarks._fleet import TOPIC, Fleet, produce, progress, running_broker, until
from kctl.demo.fleet import DemoFleet
from kctl.demo.run import Producer
from kctl_agent.storage.block import decode
from tests.servers.topics import create_topic

PER_SECOND = 4000
WARM_UP_SECONDS = 40
"""From the first batch on: those of a cold JVM take ten times as long."""
SETTINGS = """trigger_seconds = 0

[engine]
heap = "2g"
"""
"""A heap that keeps the consumers of 1,000 partitions, as the event `consumers_not_kept` asks for."""


def main() -> None:
    parser = argparse.ArgumentParser(description="the time from produced to stored, with many partitions")
    parser.add_argument("--partitions", type=int, nargs="+", default=[8, 400, 1000])
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--backlog", type=int, default=4_000_000)
    options = parser.parse_args()
    if options.backlog:
        print(json.dumps(_backlog(options.backlog)), flush=True)
    for partitions in options.partitions:
        with running_broker() as (broker, place):
            create_topic(broker.bootstrap_servers, TOPIC, partitions)
            with Fleet(place / "fleet", broker.bootstrap_servers, SETTINGS) as fleet:
                producer = Producer(broker.bootstrap_servers, TOPIC, partitions, PER_SECOND)
                producer.start()
                try:
                    until(lambda fleet=fleet: fleet.rows_stored() > 0, "the first batch")  # type: ignore[misc]
                    progress(f"{partitions} partitions: the first batch is stored")
                    Event().wait(WARM_UP_SECONDS)
                    began = time()
                    Event().wait(options.seconds)
                finally:
                    producer.stop()
                until(fleet.is_caught_up, "all is stored")
            waited = _waited(place / "fleet" / "data" / "storage.sqlite", began)
        p50, p99 = np.percentile(waited, [50, 99])
        line = {
            "benchmark": "stored_latency",
            "partitions": partitions,
            "messages": len(waited),
            "p50_ms": round(p50),
            "p99_ms": round(p99),
        }
        print(json.dumps(line), flush=True)


def _backlog(records: int) -> dict[str, object]:
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, 400)
        produce(broker, records, 100)
        fleet = DemoFleet(place / "fleet")
        (place / "fleet" / "logs").mkdir(parents=True)
        fleet.configure(bootstrap_servers=broker.bootstrap_servers, topic=TOPIC, workers=4)
        fleet.start()
        try:
            at: list[tuple[float, int]] = []

            def is_stored() -> bool:
                answer = fleet.ask("workers")
                at.append((monotonic(), sum(row["rows_total"] or 0 for row in answer["rows"]) if answer else 0))
                return at[-1][1] >= 0.9 * records

            until(is_stored, "the backlog is stored", 300)
        finally:
            fleet.stop()
    began, first = next(each for each in at if each[1] >= 0.1 * records)
    ended, last = at[-1]
    rate = round((last - first) / (ended - began))
    return {"benchmark": "backlog", "partitions": 400, "rows_per_second": rate, "target": 100_000, "met": rate >= 1e5}


def _waited(storage: Path, began: float) -> np.ndarray:
    """Milliseconds of each message that was sent since then."""
    found = []
    with closing(sqlite3.connect(storage)) as db:
        for since, first, count, body in db.execute(
            "select since, first, block.count, body from block join queue on queue.id = block.id"
        ):
            sent = decode(body, first, count).timestamps
            found.append(since * 1000 - sent[sent >= began * 1000])
    return np.concatenate(found)


if __name__ == "__main__":
    main()
