"""Command lines that tests run in their own process, or as a process."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from kctl.cli.entry import run
from tests.servers.scripted_agent import ScriptedAgent, Step

KCTL = (sys.executable, "-m", "kctl")


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = self.document["rows"]
        return rows


Kctl = Callable[..., Ran]
Master = Callable[[Mapping[str, Step | Sequence[Step]]], ScriptedAgent]


def run_here(capfd: pytest.CaptureFixture[str], *words: str) -> Ran:
    """Runs `kctl` in this process. The outcome has only what `kctl` itself prints."""
    capfd.readouterr()
    code = run(words, os.environ)
    return Ran(code, *capfd.readouterr())


def run_process(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    given: dict[str, Any] = {"check": False, "timeout": 60, **options}
    return subprocess.run([*KCTL, *words], capture_output=True, text=True, **given)
