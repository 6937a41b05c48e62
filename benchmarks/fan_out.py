"""What asking 100 agents at once costs, against the slowest of them asked alone.

The agents are ScriptedAgents in two other processes. Each round asks every agent alone over its kept connection and
notes the slowest, then fans out to all; the results are medians over the rounds. The first fan-out of a fresh pool,
which has to connect first, is printed beside them.

    python benchmarks/fan_out.py [--agents 100] [--rounds 200]

Prints one JSON line, `fan_out`: `total_ms` is to be at most 3 x `slowest_single_ms` + 10 ms.
"""

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from kctl.rpc.fan_out import AgentPool, fan_out
from tests.servers.scripted_agent import Answers, ScriptedAgent

PROCESSES = 2
DEADLINE_SECONDS = 5.0
RESULT = {
    "rows": [
        {"topic": "orders", "partition": 0, "start": 0, "committed": 10, "position": 12, "end": 20, "age_seconds": 0.1}
    ]
}


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of asking all agents at once")
    parser.add_argument("--agents", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--serve", nargs="+", metavar=("RUN_DIR", "NAME"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(Path(options.serve[0]), options.serve[1:])
        return
    run_dir = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    names = [f"worker-{number}" for number in range(options.agents)]
    servers = [_start(run_dir, names[share::PROCESSES]) for share in range(PROCESSES)]
    try:
        print(json.dumps(asyncio.run(_measure(run_dir, names, options.rounds))))
    finally:
        for server in servers:
            server.communicate()
        shutil.rmtree(run_dir)


async def _measure(run_dir: Path, names: list[str], rounds: int) -> dict[str, object]:
    targets = {name: run_dir / f"{name}.sock" for name in names}
    pool = AgentPool()
    try:
        first = await _timed(pool, targets)
        totals, slowest = [], []
        for _ in range(rounds):
            slowest.append(max([await _timed(pool, {name: path}) for name, path in targets.items()]))
            totals.append(await _timed(pool, targets))
    finally:
        pool.close()
        await asyncio.sleep(0)
    total, single = statistics.median(totals), statistics.median(slowest)
    return {
        "benchmark": "fan_out",
        "agents": len(names),
        "total_ms": round(total, 2),
        "slowest_single_ms": round(single, 2),
        "limit_ms": round(3 * single + 10, 2),
        "ratio": round(total / (3 * single + 10), 2),
        "target": 1.0,
        "met": total <= 3 * single + 10,
        "first_with_connecting_ms": round(first, 2),
        "rounds": rounds,
    }


async def _timed(pool: AgentPool, targets: dict[str, Path]) -> float:
    started = perf_counter()
    deadline = asyncio.get_running_loop().time() + DEADLINE_SECONDS
    outcome = await fan_out(pool, targets, "kafka_lag", deadline=deadline)
    assert len(outcome.answers) == len(targets), outcome.failed
    return (perf_counter() - started) * 1000


def _start(run_dir: Path, names: list[str]) -> subprocess.Popen[bytes]:
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", str(run_dir), *names], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert server.stdout is not None
    server.stdout.readline()
    return server


def _serve(run_dir: Path, names: list[str]) -> None:
    """Until stdin ends."""
    agents = [ScriptedAgent(run_dir, name, {"kafka_lag": Answers(RESULT, age_seconds=0.1)}) for name in names]
    for agent in agents:
        agent.start()
    print("ready", flush=True)
    sys.stdin.read()
    for agent in agents:
        agent.close()


if __name__ == "__main__":
    main()
