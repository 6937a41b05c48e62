"""What a lake leaves on the disk in a week at its defaults, and what a commit and a start cost then. Without Spark.

The week is simulated: a batch each `workers.trigger_seconds` (20 by default, `kctl.config.load`), committed one after
the other by `kctl_agent.storage.lake`, with one file that has as many messages of 200 bytes as came meanwhile, the same
in each batch. After each 50 batches the maintenance runs as the master has it run (`kctl_agent.table_maintenance`).
Nothing is as old as a week when the week ends, so nothing was removed: this is the most that a table has. Then a
process of its own opens the table, as a worker does at its start.

    python -m benchmarks.lake_week [--days 7] [--rate 10] [--trigger 20]

Prints a JSON line. Targets: fewer than 100,000 inodes; a commit of the last day takes at most twice as long as one of
the first, p50; a start takes at most 200 MB.
"""

import argparse
import io
import json
import multiprocessing
import os
import secrets
import statistics
import tempfile
from pathlib import Path
from shutil import rmtree
from time import perf_counter

from benchmarks._fleet import progress
from benchmarks.lake_commits import SCHEMA
from kctl.config.load import LAKE_TRIGGER_SECONDS
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.chunk import Advance, Binding, StoredOffset
from kctl_agent.storage.lake.delta.files import Written
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.table_maintenance import LEAST_FILES, looked_after

GROUP = Binding("bench", "bench")
TP = ("orders", 0)
VALUE_BYTES = 200
MOST_INODES = 100_000
START_MB = 200


def main() -> None:
    parser = argparse.ArgumentParser(description="what a lake leaves in a week at its defaults")
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--rate", type=int, default=10, help="messages a second")
    parser.add_argument("--trigger", type=float, default=LAKE_TRIGGER_SECONDS, help="seconds")
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="k", dir="/var/tmp"))  # on a disk: what is synced there is written
    try:
        print(json.dumps(week(place / "orders", options.days, options.rate, options.trigger)), flush=True)
    finally:
        rmtree(place)


def week(table: Path, days: float, rate: int, trigger: float) -> JsonObject:
    batches, messages = int(days * 86_400 / trigger), int(rate * trigger)
    storage = opened(table)
    storage.init_offsets([StoredOffset(*TP, None, 0)])
    content, taken, maintained = file_of(messages), [], 0.0
    for number in range(batches):
        batch = storage.begin([Advance(*TP, 1, number * messages, (number + 1) * messages)])
        batch.folder.make()
        batch.folder.write("part-0.parquet", content)
        began = perf_counter()
        batch.commit(Written(messages, frozenset(["part-0.parquet"])))
        taken.append(perf_counter() - began)
        if number % LEAST_FILES == LEAST_FILES - 1:
            began = perf_counter()
            _, failed = looked_after(LakeStorage(LocalFolder(table)), GROUP.group)
            assert not failed, failed
            maintained += perf_counter() - began
        if number % (batches // 10 or 1) == 0:
            progress(f"{number} of {batches} batches (load {os.getloadavg()[0]:.1f})")
    storage.table.checkpoints.wait()
    a_day = max(int(86_400 / trigger), 1)
    first, last = (statistics.median(part) * 1e3 for part in (taken[:a_day], taken[-a_day:]))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        start_seconds, start_mb = pool.apply(start, (table,))
    found = left(table)
    return {
        "benchmark": "lake_week",
        "days": days,
        "trigger_seconds": trigger,
        "messages_per_second": rate,
        "batches": batches,
        **found,
        "commit_ms_p50": [round(first, 2), round(last, 2)],
        "commit_ms_max": round(max(taken) * 1e3, 2),
        "maintenance_seconds": round(maintained, 1),
        "start_seconds": start_seconds,
        "start_mb": start_mb,
        "met": found["inodes"] < MOST_INODES and last <= 2 * first and start_mb <= START_MB,
    }


def opened(table: Path) -> LakeStorage:
    storage = LakeStorage(LocalFolder(table))
    storage.prepare()
    storage.fit(SCHEMA)
    storage.bind(GROUP)
    return storage


def file_of(messages: int) -> bytes:
    """As Spark writes it, with values that do not compress in one file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "topic": pa.array(["orders"] * messages),
        "partition": pa.array([0] * messages, pa.int32()),
        "offset": pa.array(range(messages), pa.int64()),
        "value": pa.array([secrets.token_bytes(VALUE_BYTES) for _ in range(messages)]),
    }
    file = io.BytesIO()
    pq.write_table(pa.table(columns), file, use_dictionary=["topic"])
    return file.getvalue()


def left(table: Path) -> JsonObject:
    """What is on the disk, by kind."""
    every = list(table.rglob("*"))
    files = [each for each in every if each.is_file()]
    log = [each for each in files if each.parent.name == "_delta_log"]
    counts = opened(table).count()
    return {
        "entries": sum(each.suffix == ".json" for each in log),
        "files": len(files),
        "inodes": len(every) + 1,
        "mb": round(sum(each.stat().st_size for each in files) / 1e6),
        "log_mb": round(sum(each.stat().st_size for each in log) / 1e6),
        "newest_version_files": counts.files,
    }


def start(table: Path) -> tuple[float, int]:
    """Seconds, and MB of the process at most."""
    began = perf_counter()
    storage = opened(table)
    assert storage.stored_offsets([TP])
    assert storage.stats().counts is not None
    taken = perf_counter() - began
    [peak] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return round(taken, 2), int(peak.split()[1]) // 1000


if __name__ == "__main__":
    main()
