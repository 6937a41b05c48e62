"""What a worker suffers from another one in the same engine: its time lag beside that with a neighbour at rest.

One real fleet of two workers with a partition each, mode `directly`, one engine. The first partition is the
neighbour's; the second gets `RATE` small records a second all the time, and the handler notes how old each is when it
is called. The neighbour is at rest, then has each of these by turns, with a rest before each:

- `slow_handler`: one record after another for each of which the handler sleeps `SLEEP_SECONDS`;
- `large_messages`: `LARGE_RATE` records of 1 MB a second;
- `raising_transform` (last, since it does not end): a record for which the transform raises, so that its query dies
  and is begun again and again.

    python -m benchmarks.neighbours [--seconds 30]

Prints a JSON line for each: the medians and 95th percentiles of the other worker's time lag in milliseconds, at rest
(of the rests before and after it) and beside it; `ratio` is that of the medians, at most 1.5.
"""

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

from kafka import KafkaProducer

from benchmarks._fleet import START_SECONDS, TOPIC, Fleet, progress, running_broker, until
from tests.servers.topics import create_topic

RATE = 200.0
SLEEP_SECONDS = 5.0
LARGE_RATE = 5.0
TARGET = 1.5
NEIGHBOUR, OTHER = 0, 1
SETTLE_SECONDS = 5.0
"""Of each phase nothing is counted before that."""

HANDLER = """
import os, time
from pathlib import Path

FILE = None

def handle(messages):
    global FILE
    if FILE is None:
        FILE = (Path(__file__).parent / f"ages-{os.getpid()}").open("a", buffering=1)
    now = time.time()
    for message in messages:
        if message.partition == 1:
            FILE.write(f"{now} {now - message.timestamp / 1000}\\n")
        elif message.value.startswith(b"slow"):
            time.sleep(SLEEP_SECONDS)
    return [True] * len(messages)
""".replace("SLEEP_SECONDS", str(SLEEP_SECONDS))

TRANSFORM = """
from pyspark.sql.functions import udf
from pyspark.sql.types import BinaryType

@udf(BinaryType())
def checked(value):
    if value.startswith(b"raise"):
        raise ValueError("a record that this transform does not take")
    return value

def check(frame):
    return frame.withColumn("value", checked("value"))
"""

RECORDS = {
    "slow_handler": (b"slow", 1.0 / SLEEP_SECONDS),
    "large_messages": (b"x" * 1_000_000, LARGE_RATE),
    "raising_transform": (b"raise", 1.0),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="what a worker suffers from another one in the same engine")
    parser.add_argument("--seconds", type=float, default=30.0, help="of each phase that are counted")
    seconds = parser.parse_args().seconds
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, 2)
        fleet = _fleet(place / "fleet", broker.bootstrap_servers)
        with fleet, _sending(broker.bootstrap_servers, OTHER, b"small", RATE):
            until(lambda: bool(_ages(fleet, 0.0)), "the first record is handled", START_SECONDS)
            rests = [_phase(fleet, seconds)]
            for name, (value, rate) in RECORDS.items():
                with _sending(broker.bootstrap_servers, NEIGHBOUR, value, rate):
                    beside = _phase(fleet, seconds)
                if name != "raising_transform":
                    until(fleet.has_neighbour_caught_up, "the neighbour is done", START_SECONDS)
                    rests.append(_phase(fleet, seconds))
                _report(name, [age for rest in rests[-2:] for age in rest], beside)


class _NeighbourFleet(Fleet):
    def has_neighbour_caught_up(self) -> bool:
        """The neighbour has committed all that it was sent."""
        self.check()
        answer = self.ask("offset_checker")
        rows = answer["rows"] if answer else ()
        return any(row["partition"] == NEIGHBOUR and row["remaining_count"] == 0 for row in rows)


def _fleet(directory: Path, bootstrap_servers: str) -> _NeighbourFleet:
    fleet = _NeighbourFleet(directory, bootstrap_servers, 'engine = "shared"\ntransform = "checking:check"\n')
    (directory / "handling.py").write_text(HANDLER)
    (directory / "checking.py").write_text(TRANSFORM)
    more = '\n[storage]\nmode = "directly"\n\n[sinkers]\nhandler = "handling:handle"\n'
    fleet.config.write_text(fleet.config.read_text().replace("count = 1\n", "count = 2\n") + more)
    return fleet


@contextmanager
def _sending(bootstrap_servers: str, partition: int, value: bytes, rate: float) -> Iterator[None]:
    """Such records by a thread, until it is left."""
    has_ended = Event()

    def send() -> None:
        with_time = KafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=0)
        due = time.monotonic()
        while not has_ended.wait(max(due - time.monotonic(), 0.0)):
            with_time.send(TOPIC, value, partition=partition)
            due += 1.0 / rate
        with_time.close()

    thread = Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def _phase(fleet: Fleet, seconds: float) -> list[float]:
    """Ages in seconds of the records that the other worker's handler was given while it lasted."""
    fleet.check()
    Event().wait(SETTLE_SECONDS)
    began = time.time()
    Event().wait(seconds)
    fleet.check()
    return _ages(fleet, began)


def _ages(fleet: Fleet, since: float) -> list[float]:
    lines = [line.split() for path in fleet.directory.glob("ages-*") for line in path.read_text().splitlines()]
    return [float(words[1]) for words in lines if len(words) == 2 and float(words[0]) >= since]


def _report(name: str, at_rest: list[float], beside: list[float]) -> None:
    medians = [statistics.median(each) * 1000 for each in (at_rest, beside)]
    p95 = [statistics.quantiles(each, n=20)[-1] * 1000 for each in (at_rest, beside)]
    ratio = medians[1] / medians[0]
    line = {
        "benchmark": f"neighbour_{name}",
        "at_rest_p50_ms": round(medians[0]),
        "beside_p50_ms": round(medians[1]),
        "ratio": round(ratio, 2),
        "target": TARGET,
        "met": ratio <= TARGET,
        "at_rest_p95_ms": round(p95[0]),
        "beside_p95_ms": round(p95[1]),
        "records": len(beside),
    }
    print(json.dumps(line), flush=True)
    progress(f"{len(at_rest)} records at rest")


if __name__ == "__main__":
    main()
