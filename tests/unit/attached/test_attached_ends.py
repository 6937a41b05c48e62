from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.guest import guest


@pytest.mark.parametrize(
    "ending", ["pass", "sys.exit(3)", "raise RuntimeError", "attached.close()", "os.kill(os.getpid(), 2)"]
)
def test_an_attached_application_that_ends_leaves_no_file(short_dir: Path, ending: str) -> None:
    with guest(short_dir / "run", "report", ending) as process:
        process.wait(60)

    assert os.listdir(short_dir / "run") == []


def test_ctrl_c_in_the_middle_of_waiting_leaves_no_file(short_dir: Path) -> None:
    with guest(short_dir / "run", "report") as process:
        assert sorted(os.listdir(short_dir / "run")) == ["report.pid", "report.sock", "report.start"]
        process.send_signal(signal.SIGINT)
        process.wait(60)

    assert os.listdir(short_dir / "run") == []
