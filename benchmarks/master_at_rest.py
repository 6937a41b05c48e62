"""What a master costs that has 8 workers and nothing to do: CPU and memory, against a real broker.

The workers are real processes with real agents and no Spark, which report what a real worker at rest reports; intervals
are the defaults (everything once a second).

    python benchmarks/master_at_rest.py [--workers 8] [--seconds 60]

Prints one JSON line, `master_at_rest`: `cpu_share` of one core is to be under 0.01, `rss_mib` under 120, and
`rss_growth_mib` from the first to the last tenth of the time under 3. `cpu_seconds_per_minute` shows where the time
goes: the event loop, kafka-python's I/O thread, and the threads that the loop gives work to.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event

import psutil

from benchmarks._fleet import TOPIC, running_broker, until
from tests.servers import topics

WARM_UP_SECONDS = 10.0
MEBIBYTE = 1 << 20
WORKER = Path(__file__).with_name("_resting_worker.py")

TOML = """\
[kafka]
bootstrap_servers = "{servers}"
group = "bench"
topics = ["{topic}"]
[workers]
engine = "own"
count = {workers}
[http]
port = 0
[spark.conf]
KCTL_BENCHMARK_WORKERS = "{workers}"
{load}
"""
MASTER = """
import os, sys
from pathlib import Path
from kctl import logs
from kctl.config.load import load
from kctl.start.master import run
config = load(Path(sys.argv[1]), os.environ)
logs.configure("INFO")
sys.exit(run(config, config.path, worker_command=[sys.executable, sys.argv[2]]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a master at rest")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with running_broker() as (broker, folder):
        topics.create_topic(broker.bootstrap_servers, TOPIC, options.workers * 8)
        result = measured(folder, broker.bootstrap_servers, options.workers, options.seconds)
    share = float(str(result["cpu_share"]))
    print(json.dumps({"benchmark": "master_at_rest", **result, "met": share < 0.01 and result["met"]}))


def measured(
    folder: Path,
    servers: str,
    workers: int,
    seconds: float,
    load: str = "",
    each_second: Callable[[Path], None] = lambda _: None,
) -> dict[str, object]:
    """What a master with so many workers took in that time. `load` is more TOML for Spark's conf; `each_second` is
    called with the master's run_dir. `met` is about memory alone."""
    config = folder / "kctl.toml"
    config.write_text(TOML.format(servers=servers, topic=TOPIC, workers=workers, load=load))
    with (folder / "master.log").open("wb") as log:
        master = subprocess.Popen(
            [sys.executable, "-c", MASTER, str(config), str(WORKER)],
            stdout=log,
            stderr=log,
            cwd=Path(__file__).parents[1],
        )
    try:
        until(lambda: len(list((folder / "run").glob("worker-*.sock"))) == workers, "all workers are there")
        process, pause = psutil.Process(master.pid), Event()
        pause.wait(WARM_UP_SECONDS)
        begun, used, of_threads = time.monotonic(), process.cpu_times(), _cpu_ticks(master.pid)
        sizes: list[int] = []
        while time.monotonic() - begun < seconds:
            pause.wait(1.0)
            each_second(folder / "run")
            sizes.append(process.memory_info().rss)
        took, after = time.monotonic() - begun, process.cpu_times()
        ticks = _cpu_ticks(master.pid)
    finally:
        master.send_signal(signal.SIGTERM)
        master.wait(60)
    share = (after.user + after.system - used.user - used.system) / took
    tenth = max(len(sizes) // 10, 1)
    growth = sum(sizes[-tenth:]) / tenth - sum(sizes[:tenth]) / tenth
    return {
        "workers": workers,
        "seconds": round(took, 1),
        "cpu_share": round(share, 4),
        "cpu_seconds_per_minute": _by_part(of_threads, ticks, master.pid, took / 60),
        "rss_mib": round(max(sizes) / MEBIBYTE, 1),
        "rss_growth_mib": round(growth / MEBIBYTE, 2),
        "load": round(os.getloadavg()[0], 1),
        "met": max(sizes) < 120 * MEBIBYTE and growth < 3 * MEBIBYTE,
    }


def _cpu_ticks(pid: int) -> dict[int, int]:
    """User and system time of each thread, in clock ticks; fields 14 and 15 of proc_pid_stat(5)."""
    ticks = {}
    for path in Path(f"/proc/{pid}/task").iterdir():
        fields = (path / "stat").read_text().rpartition(")")[2].split()
        ticks[int(path.name)] = int(fields[11]) + int(fields[12])
    return ticks


def _by_part(before: dict[int, int], after: dict[int, int], main_thread: int, minutes: float) -> dict[str, float]:
    """The busiest thread besides the event loop's is kafka-python's."""
    spent = {thread: (now - before.get(thread, 0)) / os.sysconf("SC_CLK_TCK") for thread, now in after.items()}
    loop, *others = spent.pop(main_thread), *sorted(spent.values(), reverse=True)
    parts = {"event loop": loop, "kafka": others[0], "pool": sum(others[1:])}
    return {part: round(seconds / minutes, 2) for part, seconds in parts.items()}


if __name__ == "__main__":
    main()
