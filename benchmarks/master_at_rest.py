"""What a master costs that has 8 workers and nothing to do: CPU and memory, against a real broker.

The workers are real processes with real agents and no Spark; intervals are the defaults (everything once a second).

    python benchmarks/master_at_rest.py [--workers 8] [--seconds 60]

Prints one JSON line, `master_at_rest`: `cpu_share` of one core is to be under 0.01, `rss_mib` under 120, and
`rss_growth_mib` from the first to the last tenth of the time under 3.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Event

import psutil

from benchmarks._fleet import TOPIC, running_broker, until
from kctl.demo import topics

WARM_UP_SECONDS = 10.0
MEBIBYTE = 1 << 20
WORKER = Path(__file__).with_name("_resting_worker.py")

TOML = """\
[kafka]
bootstrap_servers = "{servers}"
group = "bench"
topics = ["{topic}"]
[workers]
count = {workers}
[http]
port = 0
"""
MASTER = """
import os, sys
from pathlib import Path
from kctl import logs
from kctl.config import load
from kctl.master.main import run
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
        print(json.dumps(_measured(folder, broker.bootstrap_servers, options.workers, options.seconds)))


def _measured(folder: Path, servers: str, workers: int, seconds: float) -> dict[str, object]:
    config = folder / "kctl.toml"
    config.write_text(TOML.format(servers=servers, topic=TOPIC, workers=workers))
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
        begun, used = time.monotonic(), process.cpu_times()
        sizes: list[int] = []
        while time.monotonic() - begun < seconds:
            pause.wait(1.0)
            sizes.append(process.memory_info().rss)
        took, after = time.monotonic() - begun, process.cpu_times()
    finally:
        master.send_signal(signal.SIGTERM)
        master.wait(60)
    share = (after.user + after.system - used.user - used.system) / took
    tenth = max(len(sizes) // 10, 1)
    growth = sum(sizes[-tenth:]) / tenth - sum(sizes[:tenth]) / tenth
    return {
        "benchmark": "master_at_rest",
        "workers": workers,
        "seconds": round(took, 1),
        "cpu_share": round(share, 4),
        "rss_mib": round(max(sizes) / MEBIBYTE, 1),
        "rss_growth_mib": round(growth / MEBIBYTE, 2),
        "load": round(os.getloadavg()[0], 1),
        "met": share < 0.01 and max(sizes) < 120 * MEBIBYTE and growth < 3 * MEBIBYTE,
    }


if __name__ == "__main__":
    main()
