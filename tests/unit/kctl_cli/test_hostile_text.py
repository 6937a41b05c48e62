"""Names, errors and log lines that would steer the operator's terminal, shown by every command on a real one."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kctl.cli.fleet.tables import TABLES
from kctl_agent.rpc.scripted import Answers
from tests.replies import status_json

if TYPE_CHECKING:
    from tests.unit.kctl_cli.conftest import Master

BAD = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066[link=http://x]y[/link][/x]\x08\x7f\r"
WORKER = {
    "name": BAD,
    "kind": BAD,
    "state": BAD,
    "pid": 1,
    "version": BAD,
    "last_error": BAD,
    "rows_per_second": 1.0,
    "supervisor": status_json(state=BAD, last_error=BAD, restarts=1, restarts_by_cause={BAD: 1}),
}
SUPERVISED = status_json(
    name=BAD,
    desired=BAD,
    state="backoff",
    pid=None,
    last_error=BAD,
    warning=BAD,
    log=BAD,
    paused=[{"topic": BAD, "partition": None, "by": BAD, "since": 0}],
)
ROW = {"topic": BAD, "partition": 0, "current_offset": 1, "kafka_max_offset": 2, "remaining_count": 1, "worker": BAD}
RESULTS: dict[str, dict[str, Any]] = {
    "kafka_lag": {"total": 1, "unknown": [{"topic": BAD, "partition": 1}], "topics": {BAD: 1}},
    "offset_checker": {"rows": [ROW]},
    "block_size": {"pending": 1, "processing": 0, "dead": 0, "bytes": 1, "limit": None},
    "member_leader": {
        "leader": BAD,
        "generation": 1,
        "agreed": False,
        "members": [{"member_id": BAD, "worker": BAD, "is_leader": True, "generation": 1, "partitions": [ROW]}],
    },
    "metadata_brokers": {"rows": [{"node_id": 1, "host": BAD, "port": 1, "rack": BAD, "controller": True}]},
    "metadata_topics": {
        "rows": [{"topic": BAD, "partition": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1], "offline": []}]
    },
    "workers": {"rows": [WORKER]},
    "ping": {"rows": [{"name": BAD, "pid": 1, "version": BAD}]},
    "describe": {
        "methods": [{"method": BAD, "rpc": BAD, "changes": False, "deadline_ms": 1, "summary": BAD, "params": []}]
    },
    "status": {
        "rows": [SUPERVISED],
        "verdict": {"level": "failing", "about": BAD, "reason": BAD, "since": 1.0},
        "lag": {
            "total": 1,
            "unknown": 0,
            "worst": [{"topic": BAD, "partition": 0, "status": BAD, "lag": 1, "reason": BAD}],
        },
    },
    "orders": {"rows": []},
}


def on_a_terminal(*words: str, until: str | None = None, columns: int = 300) -> str:
    """What the terminal was sent until the command ended, or until `until` was among it."""
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": str(columns), "LINES": "40"}
    line = [sys.executable, "-m", "kctl", *words]
    process = subprocess.Popen(line, stdin=theirs, stdout=theirs, stderr=theirs, env=env)
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the end of a terminal is an error
        while data := os.read(ours, 1 << 16):
            seen += data
            if until is not None and until in seen.decode("utf-8", "replace"):
                process.terminate()
    process.wait()
    os.close(ours)
    return seen.decode("utf-8", "surrogateescape")


@pytest.mark.shows("message bytes, names, errors and log lines cannot steer the terminal; JSON stays the same document")
@pytest.mark.parametrize("words", [*(("rpc", name) for name in TABLES), ("status",), ("orders",)], ids=" ".join)
def test_a_table_cannot_steer_the_terminal(master: Master, words: tuple[str, ...]) -> None:
    master({name: Answers(result) for name, result in RESULTS.items()})

    text = on_a_terminal(*words)

    assert text.replace("\r\n", "").isprintable(), ascii(text)
    if words not in {("rpc", "block_size"), ("orders",)}:
        assert r"\u001b]0;owned\u0007" in text


@pytest.mark.parametrize("name", ["kafka_lag", "workers", "member_leader"])
def test_json_is_the_same_document_on_a_terminal_as_in_a_pipe(master: Master, name: str) -> None:
    master({name: Answers(RESULTS[name])})

    words = ("rpc", name, "-o", "json")
    line = [sys.executable, "-m", "kctl", *words]
    piped = subprocess.run(line, capture_output=True, text=True, check=False).stdout
    text = on_a_terminal(*words)

    assert text.replace("\r\n", "").isprintable(), ascii(text)
    assert json.loads(text) == json.loads(piped)


def test_top_shows_markup_and_escapes_as_text(master: Master) -> None:
    master({name: Answers(result) for name, result in RESULTS.items()})

    text = on_a_terminal("top", "--every", "60", until="q: end")

    assert r"\u001b]0;owned\u0007" in text
    assert "[link=http://x]y[/link][/x]" in text
    for bad in ("\x1b]", "\x9b", "\u202e", "\u2066", "\x08", "\x7f", "\x07"):
        assert bad not in text, ascii(bad)


def test_watching_shows_escapes_as_text(master: Master) -> None:
    master({name: Answers(result) for name, result in RESULTS.items()})

    text = on_a_terminal("rpc", "workers", "--watch", "60", until="evil")

    for bad in ("\x1b]", "\x9b", "\u202e", "\u2066", "\x08", "\x7f", "\x07"):
        assert bad not in text, ascii(bad)


def test_the_lines_of_a_log_cannot_steer_the_terminal_and_a_pipe_gets_them_as_they_are(
    master: Master, tmp_path: Path
) -> None:
    log = tmp_path / "w.log"
    log.write_text(f"{BAD}\nnext\tline\n")
    master({"status": Answers({"rows": [status_json(name="w", log=str(log))]})})

    text = on_a_terminal("logs", "w")

    assert text.replace("\r\n", "").replace("\t", "").isprintable(), ascii(text)
    assert r"\u001b]0;owned" in text
    piped = subprocess.run([sys.executable, "-m", "kctl", "logs", "w"], capture_output=True, check=True).stdout
    assert piped == log.read_bytes()


def test_an_error_cannot_steer_the_terminal(eventually: Callable[..., Any]) -> None:
    for words in (("rpc", BAD), ("-c", f"/{BAD}", "start"), ("status", f"--{BAD}"), ("config", "check", "-c", BAD)):
        text = on_a_terminal(*words)
        assert "owned" in text, words
        assert text.replace("\r\n", "").isprintable(), ascii(text)
