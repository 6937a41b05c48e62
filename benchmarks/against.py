"""Fifteen numbers, P1 to P15, of this checkout against those of another one, to see what a change costs.

README and docs rest on them. Both checkouts run their own benchmarks in turns, with the packages of their own
environment, so run `make setup` in both first. A number is the median of its turns; its interval goes from the second
lowest to the second highest of them. It is `worse` only if the two intervals do not overlap.

    python -m benchmarks.against CHECKOUT [--turns 7] [--only P1 P4]

Prints one JSON line for each number, and each single result to stderr. Exit code 1 if one of them is worse or failed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks._fleet import progress
from benchmarks._turns import plain_environment

HERE = Path(__file__).parents[1]
TIMEOUT_SECONDS = 900.0


class Number(NamedTuple):
    """A number: the benchmark's command, and the field of the line that has it."""

    what: str
    command: str
    line: str
    field: str
    is_more_better: bool = False


NUMBERS = {
    "P1": Number("an agent's round trip, against a raw echo", "round_trip --calls 10000", "agent_round_trip", "ratio"),
    "P2": Number("`kctl rpc kafka_lag`, against an empty Python", "cli_start --runs 10", "cli_start", "ratio"),
    "P3": Number("`kctl status`", "cli_start --runs 10", "status_start", "status_ms"),
    "P4": Number("a table of 10,000 rows, against decoding them", "cli_table --runs 5", "cli_table", "ratio"),
    "P5": Number("100 agents asked at once", "fan_out --rounds 100", "fan_out", "total_ms"),
    "P6": Number("a master at rest, of a core", "master_at_rest --seconds 15", "master_at_rest", "cpu_share"),
    "P7": Number("its memory", "master_at_rest --seconds 15", "master_at_rest", "rss_mib"),
    "P8": Number("a scrape of 100,000 series rendered", "scrape --scrapes 40", "scrape_render", "ours_ms"),
    "P9": Number("the same over HTTP, p50", "scrape --scrapes 40", "scrape_p99", "p50_ms"),
    "P10": Number("the API at 500 requests a second, p50", "api --seconds 8", "api_p99", "p50_ms"),
    "P11": Number("a cycle of 100,000 partitions", "groups --cycles 22 --sizes L", "groups_cycle", "keeping_up.cpu_ms"),
    "P12": Number("its memory", "groups --cycles 22 --sizes L", "groups_cycle", "rss_mib"),
    "P13": Number(
        "rows put into a file, against drop", "pipeline --rounds 3 --storage file", "put_to_drop", "ratio", True
    ),
    "P14": Number(
        "messages of a sinker, file",
        "sinker --rounds 2 --memory-messages 0",
        "sinker_file_plain",
        "messages_per_second",
        True,
    ),
    "P15": Number(
        "a commit to a table, p50",
        "lake_commits --commits 200 --seconds 1 --files 1000 --versions 100",
        "lake_commits_files",
        "commit_ms_p50",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description="P1 to P15 of two checkouts")
    parser.add_argument("checkout", type=Path, metavar="CHECKOUT")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", nargs="+", choices=list(NUMBERS), default=list(NUMBERS), metavar="P")
    options = parser.parse_args()
    checkouts = {"ours": HERE, "theirs": options.checkout.resolve()}
    commands = dict.fromkeys(NUMBERS[name].command for name in options.only)
    is_well = True
    for command in commands:
        names = [name for name in options.only if NUMBERS[name].command == command]
        try:
            lines = [compared(name, **found) for name, found in measured(command, names, checkouts, options.turns)]
        except (RuntimeError, LookupError, subprocess.TimeoutExpired) as error:  # the others are worth an hour
            lines = [{"benchmark": f"against_{name}", "verdict": "failed", "why": str(error)} for name in names]
        for line in lines:
            print(json.dumps(line), flush=True)
            is_well &= line["verdict"] in ("same", "better")
    return 0 if is_well else 1


def measured(
    command: str, names: Sequence[str], checkouts: Mapping[str, Path], turns: int
) -> Iterable[tuple[str, dict[str, list[float]]]]:
    """The results of one command, by number and checkout. Raises RuntimeError, LookupError, TimeoutExpired."""
    found: dict[str, dict[str, list[float]]] = {name: {each: [] for each in checkouts} for name in names}
    for turn in range(turns):
        for each in sorted(checkouts, reverse=bool(turn % 2)):
            lines = run(checkouts[each], command)
            for name in names:
                found[name][each].append(value_of(NUMBERS[name], lines))
                progress(f"{name} {each} {found[name][each][-1]} (load {os.getloadavg()[0]:.1f})")
    return found.items()


def run(checkout: Path, command: str) -> list[dict[str, Any]]:
    """The lines of a benchmark; one that misses its target has them too. Raises RuntimeError if it has none."""
    name, *arguments = command.split()
    words = [str(checkout / ".venv" / "bin" / "python"), "-m", f"benchmarks.{name}", *arguments]
    done = subprocess.run(
        words, cwd=checkout, env=plain_environment(), capture_output=True, text=True, timeout=TIMEOUT_SECONDS
    )
    if not done.stdout:
        raise RuntimeError(f"{command} in {checkout} printed nothing: {done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def value_of(number: Number, lines: Sequence[dict[str, Any]]) -> float:
    value: Any = {line["benchmark"]: line for line in lines}[number.line]
    for part in number.field.split("."):
        value = value[part]
    return float(value)


def compared(name: str, ours: Sequence[float], theirs: Sequence[float]) -> dict[str, object]:
    number, (our_low, our_high), (their_low, their_high) = NUMBERS[name], interval(ours), interval(theirs)
    is_less, is_more = our_high < their_low, our_low > their_high
    changed = "better" if is_more == number.is_more_better else "worse"
    return {
        "benchmark": f"against_{name}",
        "what": number.what,
        "field": number.field,
        "ours": statistics.median(ours),
        "our_interval": [our_low, our_high],
        "theirs": statistics.median(theirs),
        "their_interval": [their_low, their_high],
        "verdict": changed if is_less or is_more else "same",
        "turns": len(ours),
        "load": round(os.getloadavg()[0], 1),
    }


def interval(values: Sequence[float]) -> tuple[float, float]:
    """From the second lowest to the second highest; of fewer than four values, all."""
    inner = sorted(values)[1:-1] if len(values) > 3 else sorted(values)
    return inner[0], inner[-1]


if __name__ == "__main__":
    sys.exit(main())
