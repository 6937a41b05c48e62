"""Several threads decode each reply type for the first time at once, as when a master starts."""

from __future__ import annotations

import subprocess
import sys

import pytest

AT_ONCE = """
import contextlib, sys, threading
sys.setswitchinterval(1e-6)
from kctl.rpc.decode import BadResult, decoded
from kctl_agent.replies import workers
kinds = [kind for kind in vars(workers).values() if hasattr(kind, "__dataclass_fields__")]
together = threading.Barrier(8)
def run(kinds):
    together.wait()
    for kind in kinds:
        with contextlib.suppress(BadResult):
            decoded(kind, b'{"name": "a", "state": "running", "pid": 1, "events": [{"at": 1, "kind": "x"}]}')
threads = [threading.Thread(target=run, args=(kinds[:: 1 if number % 2 else -1],)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
"""When two threads made a decoder at once, 16 of 25 such processes ended by signal 11 (msgspec 0.22)."""


@pytest.mark.parametrize("attempt", range(5))
def test_threads_that_decode_for_the_first_time_at_once_end_no_process(attempt: int) -> None:
    ended = subprocess.run([sys.executable, "-c", AT_ONCE], check=False)

    assert ended.returncode == 0, f"attempt {attempt}"
