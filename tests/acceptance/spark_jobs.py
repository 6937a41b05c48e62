"""A Spark in a process of its own that runs the queries of tests, of any version: see `checkpoint_jobs.py`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.conftest import BRIEF_JVM

SCRIPT = Path(__file__).with_name("checkpoint_jobs.py")


@dataclass(frozen=True)
class Outcome:
    """What became of a query: the error that ended it, and the batches it ran: number, rows, first and next offsets."""

    version: str
    error: str | None
    batches: list[dict[str, Any]]

    @property
    def rows(self) -> int:
        return sum(int(batch["rows"]) for batch in self.batches)


class SparkJobs:
    """Queries run one after the other; each until it has read everything, or has failed."""

    def __init__(
        self,
        bootstrap: str,
        python: str = sys.executable,
        jars: str = "",
        log: Path | None = None,
        conf: Sequence[str] = (),
    ) -> None:
        env = {key: value for key, value in os.environ.items() if key != "SPARK_HOME"}
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        self._log = (log or Path(os.devnull)).open("ab")
        self._process = subprocess.Popen(
            [python, SCRIPT, bootstrap, jars, *conf],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={**env, "PYSPARK_PYTHON": python, "SPARK_LAUNCHER_OPTS": BRIEF_JVM},
            text=True,
            start_new_session=True,
        )
        self._read()

    def __enter__(self) -> SparkJobs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def kill(self) -> None:
        """Kills Python and JVM at once, as `kill -9` or the loss of a container does."""
        os.killpg(self._process.pid, signal.SIGKILL)

    def begin(self, checkpoint: Path, topics: Sequence[str], **job: Any) -> None:
        """Starts a query that goes on until the process is killed."""
        assert self._answer({"checkpoint": str(checkpoint), "topics": topics, "forever": True, **job}) == {
            "started": True
        }

    def run(self, checkpoint: Path, topics: Sequence[str], **job: Any) -> Outcome:
        return Outcome(**self._answer({"checkpoint": str(checkpoint), "topics": topics, **job}))

    def _answer(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise AssertionError(f"Spark ended, see {self._log.name}")
