"""Processor time of the driver for each million rows that executors of a Spark cluster write into a Delta table.

Standalone clusters of 1, 2 and 4 executors with a core each, all on this machine, which has too few processors to show
that more executors are faster. But the driver's own time must not grow with their number. The batches of one query go
in turns to `lake`, what a worker does with a batch, and to `delta_tuned`, Delta's own writer in `foreachBatch`
(benchmarks/lake.py). Counted is the processor time of the driver's Python and JVM during the callback.

    python -m benchmarks.lake_cluster [--executors 1 2 4] [--rounds 7] [--records 100000] [--files 400]

Prints a JSON line for each number of executors, then `grows`: the driver's time for `lake` with the most executors
against that with the fewest, which is to be at most 1.3. Then `footers`: what it takes to read the footers of a batch
of that many files, and to sync the files.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, process_time

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks import lake
from benchmarks._fleet import TOPIC, produce, running_broker, worker_settings, write_config
from benchmarks._orders import orders
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.lake.delta.files import read_files
from kctl_agent.storage.lake.folder import LocalFolder
from kctl_agent.worker.query.lake_put import COLUMNS
from kctl_agent.worker.settings import parse
from tests.acceptance.spark_cluster import SparkCluster
from tests.servers.topics import create_topic

PARTITIONS = 8
SINKS = ("lake", "delta_tuned")
MOST_GROWTH = 1.3


def main() -> None:
    parser = argparse.ArgumentParser(description="the driver's cost of a table that a cluster fills")
    parser.add_argument("--executors", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, default=100_000, help="of one batch")
    parser.add_argument("--files", type=int, default=400)
    options = parser.parse_args()
    if len(options.executors) == 1:
        print(json.dumps(measured(options.executors[0], options.rounds, options.records)), flush=True)
        return
    lines = []
    for count in options.executors:  # a process has one JVM
        command = [sys.executable, "-m", "benchmarks.lake_cluster", "--executors", str(count)]
        command += ["--rounds", str(options.rounds), "--records", str(options.records)]
        lines.append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout))
        print(json.dumps(lines[-1]), flush=True)
    grows = lines[-1]["lake_driver_seconds_per_million"] / lines[0]["lake_driver_seconds_per_million"]
    print(json.dumps({"benchmark": "lake_cluster", "grows": round(grows, 2), "met": grows <= MOST_GROWTH}), flush=True)
    print(json.dumps(footers(options.files)), flush=True)


def measured(executors: int, rounds: int, records: int) -> JsonObject:
    rounds += lake.WARM_UP_ROUNDS
    with running_broker() as (broker, place), ExitStack() as stack:
        create_topic(broker.bootstrap_servers, TOPIC, PARTITIONS)
        produce(broker, (rounds * len(SINKS) + 1) * records, orders(place))
        cluster = SparkCluster(place / "spark", workers=executors)
        cluster.start(stack)
        config = write_config(place, broker.bootstrap_servers, f"max_records_per_batch = {records}")
        settings = lake.with_delta(worker_settings(config))
        conf = dict(line.replace('"', "").split(" = ") for line in cluster.conf.splitlines())
        settings["spark"] |= {"master": cluster.url, "conf": {**settings["spark"]["conf"], **conf}}
        turns = lake.measured(parse(json.dumps(settings)), place, PARTITIONS, rounds, SINKS)
    line: JsonObject = {"benchmark": "lake_cluster", "executors": executors, "records": records}
    for sink in SINKS:
        driver, seconds = (
            statistics.median(took[sink][lake.WARM_UP_ROUNDS :]) for took in (turns.driver_seconds, turns.seconds)
        )
        line[f"{sink}_driver_seconds_per_million"] = round(driver * 1e6 / records, 2)
        line[f"{sink}_rows_per_second"] = round(records / seconds)
    return line


def footers(count: int) -> JsonObject:
    """Reads the footers of so many files of 100 rows in a folder, and syncs the files."""
    with tempfile.TemporaryDirectory(prefix="k", dir="/var/tmp") as made:  # on a disk
        folder = Path(made, "kctl-0")
        folder.mkdir()
        rows = pa.table({name: pa.array(range(100), pa.int64()) for name in COLUMNS})
        for number in range(count):
            pq.write_table(rows, folder / f"part-{number}.parquet")
        began, cpu = perf_counter(), process_time()
        found = read_files(LocalFolder(Path(made)), LocalFolder(folder))
        took, cpu = perf_counter() - began, process_time() - cpu
    return {
        "benchmark": "footers", "files": len(found), "ms_per_file": round(took * 1e3 / count, 2),
        "cpu_ms_per_file": round(cpu * 1e3 / count, 2),
    }  # fmt: skip


if __name__ == "__main__":
    main()
