"""How long a worker's Spark session takes to start, with and without the classes that set-up has recorded.

Each start is a process of its own, by turns with and without the archive (`kctl_agent.spark.class_archive`), with the
worker's own session and jars, until a first job is done. Processor time is that of the JVM and of what launches it;
it shows more than the clock where other work is done beside it.

    python -m benchmarks.worker_start [--rounds 3]

Prints one JSON line, `worker_start`, with medians: `ratio` is the processor time with the archive as a part of that
without, `ratio_by_clock` the same by the clock. No target.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._fleet import progress, worker_settings, write_config
from benchmarks._turns import plain_environment
from kctl_agent.spark.class_archive import archive_path

NO_ARCHIVE = "-Xshare:auto"
"""Java's own default; but a setting that names it is left alone by `class_archive.java_options`."""
START = """
import json, sys, time
import psutil
from kctl_agent.spark.session import session
from kctl_agent.worker.settings import parse
settings = parse(sys.stdin.readline())
settings.scratch_dir.mkdir(parents=True)
began = time.perf_counter()
spark = session(settings.spark)
spark.range(1).count()
seconds = time.perf_counter() - began
spent = psutil.Process(spark.sparkContext._gateway.proc.pid).cpu_times()
cpu = spent.user + spent.system + spent.children_user + spent.children_system
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu}))
spark.stop()
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="the start of a worker's Spark session")
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    if not archive_path().is_file():
        sys.exit(f"nothing was recorded at {archive_path()}: run python -m kctl_agent.spark.class_archive")
    taken: dict[str, list[dict[str, float]]] = {"with": [], "without": []}
    for turn in range(rounds):
        for name in taken if turn % 2 else reversed(taken):
            taken[name].append(_start(NO_ARCHIVE if name == "without" else ""))
            progress(f"{name}: {taken[name][-1]}")
    median = {
        f"{quantity}_{name}": round(statistics.median(each[quantity] for each in starts), 2)
        for name, starts in taken.items()
        for quantity in ("cpu_seconds", "seconds")
    }
    line = {
        "benchmark": "worker_start",
        **median,
        "ratio": round(median["cpu_seconds_with"] / median["cpu_seconds_without"], 2),
        "ratio_by_clock": round(median["seconds_with"] / median["seconds_without"], 2),
        "rounds": rounds,
    }
    print(json.dumps(line), flush=True)


def _start(java_options: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as place:
        config = write_config(Path(place), "127.0.0.1:9092")  # nobody is asked: only the session is started
        settings = worker_settings(config)
        settings["spark"]["conf"]["spark.driver.extraJavaOptions"] = java_options
        done = subprocess.run(
            [sys.executable, "-c", START],
            input=json.dumps(settings) + "\n",
            env=plain_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(done.stderr)
    spent: dict[str, float] = json.loads(done.stdout)
    return spent


if __name__ == "__main__":
    main()
