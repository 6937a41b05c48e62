"""`kctl rpc` as a process of its own: pipes, terminals, signals, exit codes."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kctl import fleets
from tests.command_lines import KCTL
from tests.conftest import eventually
from tests.servers.scripted_agent import Answers, ScriptedAgent, Stalls, Step

LAG = {"total": 62, "unknown": [], "topics": {"orders": 62}}


@contextmanager
def master(short_dir: Path, script: dict[str, Step | list[Step]]) -> Iterator[ScriptedAgent]:
    with ScriptedAgent(short_dir / "run", "master", script) as agent:
        entry = fleets.register("orders", short_dir / "run", short_dir / "kctl.toml")
        yield agent
        fleets.unregister(entry)


def piped(*words: str) -> subprocess.Popen[bytes]:
    # Unbuffered, Python does not notice that a pipe has taken only half of a write.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.Popen([*KCTL, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def many_rows(count: int) -> dict[str, Any]:
    row = {"topic": "orders", "current_offset": 1, "kafka_max_offset": 2, "remaining_count": 1, "worker": "worker-0"}
    return {"rows": [{**row, "partition": number, "age_seconds": 0.1} for number in range(count)]}


@pytest.mark.shows("`kctl rpc`: exit codes, pipes, signals; `--watch` prints one document per line")
def test_a_reader_that_has_seen_enough_ends_it_quietly(short_dir: Path) -> None:
    with master(short_dir, {"offset_checker": Answers(many_rows(20_000))}), piped("rpc", "offset_checker") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b"topic")
        process.stdout.close()
        printed = process.stderr.read()

    assert (process.returncode, printed) == (141, b"")


def test_ctrl_c_while_it_waits_ends_it_silently_with_130(short_dir: Path) -> None:
    with master(short_dir, {"kafka_lag": Stalls()}) as agent, piped("rpc", "kafka_lag", "--timeout", "30") as process:
        eventually(lambda: agent.requests)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)

    assert (process.returncode, out, err) == (130, b"", b"")


def test_watching_into_a_pipe_prints_one_json_document_per_line_until_ctrl_c(short_dir: Path) -> None:
    steps: list[Step] = [Answers({**LAG, "total": total}) for total in (1, 2, 3)]

    with master(short_dir, {"kafka_lag": steps}), piped("rpc", "kafka_lag", "--watch", "0.01", "-o", "json") as process:
        assert process.stdout is not None
        totals = [json.loads(process.stdout.readline())["total"] for _ in range(3)]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert (totals, process.returncode) == ([1, 2, 3], 0)
