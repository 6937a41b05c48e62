"""What `kctl rpc kafka_lag` costs as a whole process, against `python -c pass` on the same machine in the same run.

Start-up is nearly all of it: the master is a ScriptedAgent in this process, found through the list of running fleets as
an operator's would be. All are run in turns, so that whatever else the machine does falls on each. `modules` is how
many are imported; `kctl status`, which asks twice, stands beside it. PYTHON* variables
are left out: one of them forbids compiled files, and then every run would compile all of it anew.

    python -m benchmarks.cli_start [--runs 60]

Prints two JSON lines. `cli_start`: `ratio` is to be at most 10, and `rpc_ms` at most a tenth of Kafka's own
`ConsumerGroupCommand --describe`, which takes 1050 ms here. `status_start`: `kctl status` against `kctl rpc`, at most
1.5.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks._turns import plain_environment, seconds_in_turns
from kctl import fleets
from tests.servers.scripted_agent import Answers, ScriptedAgent

WELL = {"level": "ok", "about": "fleet", "reason": "all runs", "since": 1763719442.0, "also": []}
LAG = {"total": 123456, "unknown": [], "topics": {"orders": 123000, "payments": 456}}


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a whole kctl rpc")
    parser.add_argument("--runs", type=int, default=60)
    runs = parser.parse_args().runs
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    env = plain_environment()
    env["XDG_RUNTIME_DIR"] = str(place)
    script = {
        "kafka_lag": Answers(LAG),
        "workers": Answers({"rows": []}),
        "status": Answers({"rows": [], "verdict": WELL}),
    }
    try:
        with ScriptedAgent(place / "run", "master", script):
            entry = fleets.register("bench", place / "run", place / "kctl.toml", env)
            for line in _measure(runs, env):
                print(json.dumps(line))
            fleets.unregister(entry)
    finally:
        shutil.rmtree(place)


def _measure(runs: int, env: dict[str, str]) -> list[dict[str, object]]:
    kctl = str(Path(sys.executable).with_name("kctl"))
    commands = {
        "pass": [sys.executable, "-c", "pass"],
        "rpc": [kctl, "rpc", "kafka_lag"],
        "status": [kctl, "status"],
    }
    times = seconds_in_turns(commands, runs, env)
    median = {name: statistics.median(taken) * 1000 for name, taken in times.items()}
    to_pass, to_rpc = (round(median[a] / median[b], 2) for a, b in (("rpc", "pass"), ("status", "rpc")))
    return [
        {
            "benchmark": "cli_start",
            "rpc_ms": round(median["rpc"], 1),
            "pass_ms": round(median["pass"], 1),
            "ratio": to_pass,
            "target": 10.0,
            "met": to_pass <= 10.0,
            "modules": _modules(kctl, env),
            "runs": runs,
        },
        {
            "benchmark": "status_start",
            "status_ms": round(median["status"], 1),
            "rpc_ms": round(median["rpc"], 1),
            "ratio": to_rpc,
            "target": 1.5,
            "met": to_rpc <= 1.5,
            "runs": runs,
        },
    ]


def _modules(kctl: str, env: dict[str, str]) -> int:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", kctl, "rpc", "kafka_lag"],
        env=env,
        capture_output=True,
        text=True,
        check=True,
    )
    return sum(line.startswith("import time:") for line in done.stderr.splitlines()) - 1


if __name__ == "__main__":
    main()
