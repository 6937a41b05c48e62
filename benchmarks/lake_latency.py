"""How long a message waits until it is a row that readers of the Delta table see, and how many files that makes.

One broker, one fleet of one worker at a time, by `workers.trigger_seconds`: 1, 5 and 60. A producer sends 100 orders a
second into 4 partitions, each with the time at which it was sent; visible is a row with the log's entry that adds its
file, at the time at which that was written (the clock of this machine, for both). What is sent in the first 20 s, or in
the first trigger where that is longer, is not counted. Maintenance is off meanwhile, and done once at the end; with
`--maintenance` the master does it as it sees fit.

    python -m benchmarks.lake_latency [--triggers 1 5 60] [--seconds 60] [--maintenance]

Prints a JSON line for each: milliseconds from sent to visible, `files_per_hour` that batches write (counted in this run
and multiplied), `files_largest`, the most that any version of the table had, `compactions`, the versions by which it
has fewer files than before, and `files_after_optimize`, as many as are left by one `kctl storage optimize`.
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from threading import Event
from time import monotonic, time

import pyarrow.parquet as pq
from deltalake import DeltaTable
from kafka import KafkaProducer

from benchmarks._fleet import TOPIC, Fleet, progress, running_broker, until
from benchmarks._orders import orders
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.lake.delta.log import actions, committed_at, own_file
from kctl_agent.storage.lake.folder import LocalFolder
from tests.servers.topics import create_topic

PARTITIONS = 4
PER_SECOND = 100
TICKS = 20
"""A second, in each of which a share of the messages is sent."""
LEAST_BATCHES = 3
WARM_UP_SECONDS = 20
"""The first batches of a JVM take ten times as long as later ones."""
TAKE_OVER = 'on_other_storage = "take_over"'
"""The group's offsets were committed with the table of the fleet before."""


def main() -> None:
    parser = argparse.ArgumentParser(description="the time from produced to visible in a table")
    parser.add_argument("--triggers", nargs="+", type=int, default=[1, 5, 60])
    parser.add_argument("--seconds", type=int, default=60, help="of each, or three triggers where that is longer")
    parser.add_argument("--maintenance", action="store_true", help="let the master compact files meanwhile")
    options = parser.parse_args()
    with running_broker() as (broker, place):
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        values = orders(place).read_bytes().splitlines()
        for trigger in options.triggers:
            seconds = max(options.seconds, LEAST_BATCHES * trigger)
            table, directory = place / f"table-{trigger}", place / f"fleet-{trigger}"
            maintenance = str(options.maintenance).lower()
            storage = f'\n[storage]\nmode = "lake"\nuri = "{table.as_uri()}"\nmaintenance = {maintenance}\n{TAKE_OVER}'
            with Fleet(directory, broker.bootstrap_servers, f"trigger_seconds = {trigger}\n{storage}") as fleet:
                until(fleet.is_caught_up, "the worker keeps up")
                warm_up = max(trigger, WARM_UP_SECONDS)
                began = _send(broker.bootstrap_servers, values, warm_up + seconds) + warm_up
                until(fleet.is_caught_up, "all is stored", 3 * trigger + 60)
            print(json.dumps(_row(trigger, directory, table, began)), flush=True)


def _send(bootstrap_servers: str, values: list[bytes], seconds: float) -> float:
    """For so long, evenly; returns when it began, in Unix seconds."""
    producer, never = KafkaProducer(bootstrap_servers=bootstrap_servers, acks="all", linger_ms=0), Event()
    began_at, began = time(), monotonic()
    for tick in range(int(seconds * TICKS)):
        never.wait(max(0.0, began + tick / TICKS - monotonic()))
        for number in range(PER_SECOND // TICKS):
            producer.send(TOPIC, values[(tick * TICKS + number) % len(values)], partition=(tick + number) % PARTITIONS)
    producer.flush()
    producer.close()
    return began_at


def _row(trigger: int, directory: Path, table: Path, began: float) -> JsonObject:
    waited, batches, files = [], [], 0
    there = _files_by_version(table)
    for version, paths in _versions(table):
        at = committed_at(LocalFolder(table), version)
        assert at is not None
        sent = [each for path in paths for each in _timestamps(path) if each >= began]
        if sent:
            waited += [(at - each) * 1e3 for each in sent]
            batches.append(at)
            files += len(paths)
    counted = len(batches)
    span = batches[-1] - batches[0]
    command = [sys.executable, "-m", "kctl", "storage", "optimize", "-c", str(directory / "kctl.toml")]
    progress(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
    cuts = statistics.quantiles(waited, n=100, method="inclusive")
    return {
        "benchmark": f"lake_latency_{trigger}",
        "trigger_seconds": trigger,
        "messages": len(waited),
        "batches": counted,
        "ms_p50": round(cuts[49]),
        "ms_p99": round(cuts[98]),
        "ms_max": round(max(waited)),
        "files": files,
        "files_per_hour": round(files / counted * (counted - 1) / span * 3600),
        "files_largest": max(there),
        "compactions": sum(after < before for before, after in pairwise(there)),
        "files_after_optimize": len(DeltaTable(table).file_uris()),
    }


def _versions(table: Path) -> Iterator[tuple[int, list[Path]]]:
    """Those by which rows have come, with their files."""
    for version in range(1, DeltaTable(table).version() + 1):
        adds = [each["add"] for each in actions(LocalFolder(table), version) if "add" in each]
        if paths := [table / own_file(add["path"]) for add in adds if add["dataChange"]]:
            yield version, paths


def _files_by_version(table: Path) -> list[int]:
    """How many files each version has."""
    found = [actions(LocalFolder(table), version) for version in range(DeltaTable(table).version() + 1)]
    return list(accumulate(sum(("add" in each) - ("remove" in each) for each in entry) for entry in found))


def _timestamps(path: Path) -> list[float]:
    return [each.timestamp() for each in pq.read_table(path, columns=["timestamp"])["timestamp"].to_pylist()]


if __name__ == "__main__":
    main()
