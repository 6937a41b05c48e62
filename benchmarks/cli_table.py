"""What the table of `kctl rpc offset_checker` costs for many partitions, in processor time of the whole process.

Against a Python that does no more than decode the same JSON. Both are run in turns, so that whatever else the machine
does falls on each. The master is a ScriptedAgent in this process, as in `cli_start`.

    python -m benchmarks.cli_table [--partitions 10000] [--runs 30]

Prints one JSON line: `ratio` is to be at most 3.
"""

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

from benchmarks._turns import WARM_UP_RUNS, plain_environment
from kctl import fleets
from tests.servers.scripted_agent import Answers, ScriptedAgent

DECODE = "import json, sys; json.load(open(sys.argv[1]))"
TABLE = (sys.executable, "-m", "kctl", "rpc", "offset_checker", "--timeout", "60")


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of a large table")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=30)
    options = parser.parse_args()
    answer = {"rows": rows(options.partitions)}
    place = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    env = {**plain_environment(), "XDG_RUNTIME_DIR": str(place)}
    (place / "answer").write_text(json.dumps(answer))
    commands = {"table": TABLE, "decode": (sys.executable, "-c", DECODE, str(place / "answer"))}
    try:
        with ScriptedAgent(place / "run", "master", {"offset_checker": Answers(answer)}):
            entry = fleets.register("bench", place / "run", place / "kctl.toml", env)
            times = processor_seconds_in_turns(commands, options.runs, env)
            fleets.unregister(entry)
    finally:
        shutil.rmtree(place)
    print(
        json.dumps({"benchmark": "cli_table", "partitions": options.partitions, "runs": options.runs, **_result(times)})
    )


def rows(count: int) -> list[dict[str, object]]:
    random = Random(1)
    return [
        {
            "topic": f"orders-{number // 1000}",
            "partition": number % 1000,
            "current_offset": random.randrange(10**9),
            "kafka_max_offset": 10**9 + random.randrange(10**6),
            "remaining_count": random.randrange(10**6),
            "worker": f"worker-{number % 16}",
            "age_seconds": round(random.random(), 3),
        }
        for number in range(count)
    ]


def processor_seconds_in_turns(
    commands: Mapping[str, Sequence[str]], runs: int, env: Mapping[str, str]
) -> dict[str, list[float]]:
    """Of each command; the order changes with each turn."""
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(WARM_UP_RUNS + runs):
        for name in sorted(commands, reverse=bool(turn % 2)):
            began = _children_seconds()
            subprocess.run(commands[name], env=env, stdout=subprocess.DEVNULL, check=True)
            if turn >= WARM_UP_RUNS:
                times[name].append(_children_seconds() - began)
    return times


def _children_seconds() -> float:
    """User and system time of all processes that have ended: `os.times` counts in hundredths."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _result(times: Mapping[str, list[float]]) -> dict[str, object]:
    median = {name: statistics.median(taken) for name, taken in times.items()}
    ratio = median["table"] / median["decode"]
    return {
        **{f"{name}_ms": round(seconds * 1000, 1) for name, seconds in median.items()},
        "ratio": round(ratio, 2),
        "target": 3.0,
        "met": ratio <= 3.0,
    }


if __name__ == "__main__":
    main()
