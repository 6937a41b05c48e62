"""Runs the benchmarks, one after another, each in a process of its own: `python -m benchmarks [--long] [NAME ...]`.

Every file here that does not begin with an underscore is one. Their JSON lines go to stdout as they come, progress to
stderr. Exit code 1 when one of them failed or missed its target.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
LONG = {
    "agent_under_load": ("--records", "10000000"),
    "api": ("--seconds", "120"),
    "batch_latency": ("--rounds", "60"),
    "cli_start": ("--runs", "200"),
    "cli_table": ("--runs", "60", "--partitions", "100000"),
    "collector": ("--rounds", "15"),
    "fan_out": ("--rounds", "500"),
    "first_batch": ("--rounds", "5"),
    "kafka_lag": ("--runs", "30"),
    "kafka_tool": ("--runs", "40"),
    "lake": ("--rounds", "20"),
    "lake_commits": ("--commits", "3000", "--seconds", "60"),
    "lake_commits_s3": ("--commits", "300"),
    "master_at_rest": ("--seconds", "300"),
    "master_under_load": ("--seconds", "1800"),
    "pipeline": ("--rounds", "15"),
    "round_trip": ("--calls", "200000"),
    "scrape": ("--scrapes", "1000"),
    "sinker": ("--rounds", "60", "--memory-messages", "5000000"),
    "worker_start": ("--rounds", "10"),
}
"""What `--long` passes to each: more rounds, for results that go into the README. The others have no longer run."""


def main() -> int:
    no_benchmarks = ("_", "against")  # which compares two checkouts
    known = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith(no_benchmarks))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("--long", action="store_true", help="more rounds")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(known)}; all without")
    options = parser.parse_args()
    unknown = set(options.names) - set(known)
    if unknown:
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    missed: list[str] = []
    for name in options.names or known:
        missed += _run(name, LONG.get(name, ()) if options.long else ())
    if missed:
        print(f"missed or failed: {', '.join(missed)}", file=sys.stderr)
    return 1 if missed else 0


def _run(name: str, arguments: tuple[str, ...]) -> list[str]:
    """Passes the lines on. Returns what was missed."""
    print(f"{name} (load {os.getloadavg()[0]:.1f})", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", f"benchmarks.{name}", *arguments]
    with subprocess.Popen(command, cwd=HERE.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        missed = []
        for line in process.stdout:
            print(line, end="", flush=True)
            result = json.loads(line)
            if not result.get("met", True):  # a line without a verdict is a baseline
                missed.append(result["benchmark"])
    return missed if process.returncode == 0 else [*missed, f"{name} (exit code {process.returncode})"]


if __name__ == "__main__":
    sys.exit(main())
