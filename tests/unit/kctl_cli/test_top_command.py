"""`kctl top`: on a real terminal (a pseudo one), and as lines without."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kctl.cli.top_command import Glance, summary
from kctl_agent.scripted import Answers

if TYPE_CHECKING:
    from tests.unit.kctl_cli.conftest import Master

WORKERS = {
    "rows": [
        {
            "name": "worker-0",
            "state": "running",
            "rows_per_second": 1234.5,
            "last_error": None,
            "supervisor": {"state": "running", "since_seconds": 5.0, "restarts": 1, "restarts_by_cause": {"memory": 1}},
        },
        {"name": "worker-1", "state": None, "supervisor": {"state": "backoff", "last_error": "died"}},
    ]
}
OFFSETS = {
    "rows": [
        {
            "topic": "t",
            "partition": p,
            "current_offset": 5,
            "kafka_max_offset": 5 + lag,
            "remaining_count": lag,
            "worker": w,
        }
        for p, lag, w in ((0, 3, "worker-1"), (1, 900, "worker-0"))
    ]
}
SCRIPT = {
    "workers": Answers(WORKERS),
    "offset_checker": Answers(OFFSETS),
    "block_size": Answers({"pending": 17, "processing": 0, "dead": 0, "bytes": 1, "limit": None}),
}
LINE = "1 of 2 workers run · lag 903 · 1,234 rows/s · 17 wait in the storage"


def test_a_glance_is_told_in_one_line_and_what_is_not_known_is_a_dash() -> None:
    assert summary(Glance()) == "0 of 0 workers run · lag - · - rows/s · - wait in the storage"
    assert summary(Glance(problem="no master is running there")) == "no master is running there"


def test_without_a_terminal_it_prints_a_line_each_time(master: Master) -> None:
    master(SCRIPT)
    words = [sys.executable, "-m", "kctl", "top", "--every", "0.2"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as top:
        assert top.stdout is not None
        lines = [top.stdout.readline().strip() for _ in range(2)]
        top.terminate()

    assert [line.partition("  ")[2] for line in lines] == [LINE, LINE]


def test_on_a_terminal_it_fills_the_screen_sorts_by_a_key_and_ends_with_q(
    master: Master, eventually: Callable[..., Any]
) -> None:
    master(SCRIPT)
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    seen = bytearray()

    def shown(*in_order: str, also: tuple[str, ...] = ()) -> bool:
        with contextlib.suppress(BlockingIOError):
            seen.extend(os.read(ours, 1 << 16))
        text = seen.decode("utf-8", "replace")
        places = [text.rfind(word) for word in in_order]
        return min(places) >= 0 and places == sorted(places) and all(word in text for word in also)

    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    words = [sys.executable, "-m", "kctl", "top", "--every", "60"]
    top = subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    try:
        eventually(lambda: shown(LINE, "1: memory 1", "died", "t-1", "t-0", also=("worker-1", "backoff", "900")))
        os.write(ours, b"p")
        eventually(lambda: shown("t-0", "t-1", "now: partition"))
        os.write(ours, b"q")
        assert top.wait(60) == 0
    finally:
        top.kill()
        top.wait()
        os.close(ours)
        os.close(theirs)
