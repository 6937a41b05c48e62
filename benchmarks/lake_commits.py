"""What a commit to a table costs: in a large one, with a long log, and beside other workers. Without Spark.

Each commit is a batch of a worker (`kctl_agent.storage.lake`) that moves the stored offsets of 8 partitions: these are
read, the plan is written (`begin`); the footer of its file is read, all is synced, the log's entry written (`commit`).
The file has one row; pyarrow writes it, which is not timed.

- `empty`, `versions` and `files`: 300 commits in a row to a table of one commit, one of 10,000 versions with a file
  each, and one of 100,000 files in 100 versions (none of which is there: nobody reads them); beside it what delta-rs
  takes for its update and commit of the same actions. `start` is what a worker does before its first batch, with the
  first count of files and rows; `rss` of the process after the first commit and after the last.
- `workers`: 1, 2, 5 and 10 processes on one table, each with partitions of its own: a commit a second each (`paced`),
  and as fast as they can (`flat_out`).

    python -m benchmarks.lake_commits [--commits 300] [--seconds 20] [--files 100000] [--versions 10000]

Prints JSON lines. Targets: 99 of 100 `commit`s take at most 100 ms in each table; `start` at most 2 s more
than of `empty`; `rss` grows by at most 5 MB over the commits, and is at most 25 MB more than of `empty`; the processor
time of a commit of ten workers that are paced at most 1.5 of that of one.
"""

import argparse
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.pool import Pool
from multiprocessing.synchronize import Barrier
from pathlib import Path
from shutil import rmtree
from threading import Event
from time import perf_counter, time

from benchmarks._fleet import progress
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.chunk import Advance, Binding, StoredOffset, TopicPartition
from kctl_agent.storage.lake.delta.commit_actions import append_actions
from kctl_agent.storage.lake.delta.files import DataFile
from kctl_agent.storage.lake.delta.log import write_entry
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.storage.lake.storage import LakeStorage
from kctl_agent.storage.lake.table_storage import LakeBatch

PARTITIONS = 8
WORKERS = (1, 2, 5, 10)
DELTA_RS_COMMITS = 20
WARM_UP = 3
COMMIT_SECONDS = 0.1
START_SECONDS = 2.0
GROWTH_MB, LARGE_MB = 5, 25
LINEAR = 1.5
FIELDS = (("topic", "string"), ("partition", "integer"), ("offset", "long"), ("value", "binary"))
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in FIELDS]}
)


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a commit to a large table, and beside other workers")
    parser.add_argument("--commits", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each number of workers")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--versions", type=int, default=10_000)
    options = parser.parse_args()
    place = Path(tempfile.mkdtemp(prefix="k", dir="/var/tmp"))  # on a disk: what is synced there is written
    try:
        tables = {"empty": (1, 1), "versions": (options.versions,) * 2, "files": (options.files, 100)}
        sizes(place, options.commits, tables)
        workers(place, options.seconds)
    finally:
        rmtree(place)


def sizes(place: Path, commits: int, tables: Mapping[str, tuple[int, int]]) -> None:
    empty: JsonObject = {}
    for name, (files, versions) in tables.items():
        table = place / name
        made(table, files, versions)
        progress(f"{name} is made (load {os.getloadavg()[0]:.1f})")
        [ours] = in_processes(1, row_of_commits, table, commits)
        [theirs] = in_processes(1, row_of_delta_rs, table, min(commits, DELTA_RS_COMMITS))
        empty = empty or ours
        line = {"benchmark": f"lake_commits_{name}", "files": files, "versions": versions, **ours, **theirs}
        line["ratio"] = round(theirs["delta_rs_ms_p50"] / (ours["begin_ms_p50"] + ours["commit_ms_p50"]), 1)
        first, last = ours["rss_mb"]
        is_met = (
            ours["commit_ms_p99"] <= COMMIT_SECONDS * 1e3
            and ours["start_seconds"] <= empty["start_seconds"] + START_SECONDS
            and last - first <= GROWTH_MB
            and last - empty["rss_mb"][1] <= LARGE_MB
        )
        print(json.dumps({**line, "met": is_met}), flush=True)


def open_table(table: Path) -> LakeStorage:
    """As a worker does it; a table that does not exist is made."""
    storage = LakeStorage(LocalFolder(table))
    storage.prepare()
    storage.fit(SCHEMA)
    return storage


def made(table: Path, files: int, versions: int) -> None:
    """With so many files and versions, and checkpoints as commits have them written."""
    lake = LakeStorage(LocalFolder(table))
    lake.prepare()
    lake.fit(SCHEMA)
    number = iter(range(files))
    for version in range(1, versions + 1):
        added = [_file(next(number)) for _ in range(files // versions)]
        write_entry(lake.folder, version, append_actions(added, {}, [], int(time() * 1e3)))
        if version % 1000 == 0 or version == versions:
            with lake.table.latest() as opened:
                opened.create_checkpoint()


def _file(number: int) -> DataFile:
    """With statistics as a batch of raw columns has them."""
    bounds = {"topic": "orders", "partition": number % PARTITIONS, "offset": number}
    nulls = {name: 0 for name, _ in FIELDS}
    return DataFile(f"kctl-{number:032x}/part-00000.snappy.parquet", 1 << 20, 0, {}, 1000, nulls, bounds, bounds)


class Worker:
    """Of its own partitions of a table."""

    def __init__(self, table: Path, number: int) -> None:
        self.storage = open_table(table)
        self.storage.bind(Binding(f"bench-{number}", "bench"))
        self.partitions: list[TopicPartition] = [("orders", each) for each in range(PARTITIONS)]
        there = self.storage.stored_offsets(self.partitions)
        if not there:
            self.storage.init_offsets([StoredOffset(*tp, None, 0) for tp in self.partitions])
        self._next = there[self.partitions[0]].next if there else 0
        self.begin: list[float] = []
        self.commit: list[float] = []

    def step(self) -> None:
        began = perf_counter()
        batch = self.storage.begin([Advance(*tp, 1, self._next, self._next + 1) for tp in self.partitions])
        begun = perf_counter()
        _write(batch)
        written = perf_counter()
        batch.commit()
        self.begin.append(begun - began)
        self.commit.append(perf_counter() - written)
        self._next += 1

    def end(self) -> None:
        self.storage.table.checkpoints.wait()
        self.storage.close()


def _write(batch: LakeBatch) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    Path(batch.folder.uri).mkdir()
    pq.write_table(pa.table({"topic": ["orders"], "offset": [1]}), Path(batch.folder.uri) / "part-0.parquet")


def row_of_commits(table: Path, commits: int, _: int) -> JsonObject:
    began = perf_counter()
    worker = Worker(table, 0)
    counts = worker.storage.stats().counts
    started = perf_counter() - began
    assert counts is not None
    worker.step()
    at_first = _rss()
    for _ in range(commits - 1):
        worker.step()
    after = _rss()
    worker.end()
    return {
        "start_seconds": round(started, 3),
        **_milliseconds("begin", worker.begin),
        **_milliseconds("commit", worker.commit),
        "rss_mb": [at_first, after],
    }


def row_of_delta_rs(table: Path, commits: int, _: int) -> JsonObject:
    from deltalake import CommitProperties, DeltaTable, Transaction
    from deltalake.transaction import AddAction

    opened, taken = DeltaTable(table), []
    for number in range(commits):
        file = _file(-1 - number)
        transactions = [Transaction(f"delta-rs/{each}", number) for each in range(PARTITIONS)]
        began = perf_counter()
        opened.update_incremental()
        opened.create_write_transaction(
            [AddAction(file.path, file.size, file.partition_values, 0, True, file.stats)],
            "append",
            opened.schema(),
            [],
            commit_properties=CommitProperties(app_transactions=transactions),
        )
        taken.append(perf_counter() - began)
    return {**_milliseconds("delta_rs", taken), "delta_rs_rss_mb": _rss()}


def workers(place: Path, seconds: float) -> None:
    for pace in (1.0, 0.0):
        alone = 0.0
        for count in WORKERS:
            table = place / f"workers-{count}-{pace}"
            open_table(table).close()
            rows = in_processes(count, row_of_load, table, seconds, pace)
            commits = sum(len(row["commit"]) for row in rows)
            cpu_ms = sum(row["cpu_seconds"] for row in rows) / commits * 1e3
            alone = alone or cpu_ms
            line: JsonObject = {
                "benchmark": "lake_workers_" + ("paced" if pace else "flat_out"),
                "workers": count,
                "commits_per_second": round(commits / seconds, 1),
                "retries": sum(row["retries"] for row in rows),
                **_milliseconds("begin", [each for row in rows for each in row["begin"]]),
                **_milliseconds("commit", [each for row in rows for each in row["commit"]]),
                "cpu_ms_per_commit": round(cpu_ms, 2),
                "ratio": round(cpu_ms / alone, 2),
            }
            if pace:
                line |= {"target": LINEAR, "met": cpu_ms <= LINEAR * alone}
            print(json.dumps(line), flush=True)


_start: Barrier


def _at_the_same_time(barrier: Barrier) -> None:
    global _start
    _start = barrier


def row_of_load(table: Path, seconds: float, pace: float, number: int) -> JsonObject:
    """Commits for so many seconds, one each `pace` seconds; 0: at once."""
    worker, never = Worker(table, number), Event()
    for _ in range(WARM_UP):  # imports what a first commit does
        worker.step()
    worker.begin.clear()
    worker.commit.clear()
    _start.wait()
    retried, cpu = worker.storage.table.commits_retried, _cpu()
    began = perf_counter()
    due = began + number * pace / 10  # batches of several workers are not triggered in the same moment
    while (now := perf_counter()) < began + seconds:
        if now < due:
            never.wait(min(due, began + seconds) - now)
            continue
        worker.step()
        due += pace
    row = {
        "begin": worker.begin,
        "commit": worker.commit,
        "retries": worker.storage.table.commits_retried - retried,
        "cpu_seconds": _cpu() - cpu,
    }
    worker.end()
    return row


def in_processes(count: int, function: Callable[..., JsonObject], *args: object) -> list[JsonObject]:
    context = multiprocessing.get_context("spawn")
    pool: Pool
    with context.Pool(count, _at_the_same_time, (context.Barrier(count),)) as pool:
        return pool.starmap(function, [(*args, number) for number in range(count)], chunksize=1)


def _milliseconds(name: str, seconds: Sequence[float]) -> JsonObject:
    def of(taken: Sequence[float]) -> Iterator[tuple[str, float]]:
        yield f"{name}_ms_p50", statistics.median(taken)
        yield f"{name}_ms_p99", statistics.quantiles(taken, n=100, method="inclusive")[98]
        yield f"{name}_ms_max", max(taken)

    return {key: round(value * 1e3, 2) for key, value in of(seconds)}


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _rss() -> int:
    """In MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1_000_000


if __name__ == "__main__":
    main()
