"""Whole processes that run in turns, so that whatever else the machine does falls on each of them."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence

from benchmarks._fleet import progress

__all__ = ["WARM_UP_RUNS", "plain_environment", "seconds_in_turns"]

WARM_UP_RUNS = 2
"""Not counted: the first ones write the compiled files and warm the page cache."""


def plain_environment() -> dict[str, str]:
    """Ours without what a developer has set for kctl and Python: one PYTHON* variable forbids compiled files, and then
    every run would compile all of it anew. Where the jars are cached stays."""
    return {
        name: value
        for name, value in os.environ.items()
        if name == "KCTL_CACHE_DIR" or not name.startswith(("KCTL_", "PYTHON"))
    }


def seconds_in_turns(
    commands: Mapping[str, Sequence[str]], runs: int, env: Mapping[str, str] | None = None
) -> dict[str, list[float]]:
    """How long each took, by its name, in each of `runs`. Raises CalledProcessError when one fails."""
    env = plain_environment() if env is None else env
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(WARM_UP_RUNS + runs):
        for name, command in commands.items():
            began = time.perf_counter()
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            if turn >= WARM_UP_RUNS:
                times[name].append(time.perf_counter() - began)
            elif turn == 0:
                lines = done.stdout.splitlines()
                progress(f"{name} wrote {len(lines)} lines: {' | '.join(lines[:3])}")
    return times
