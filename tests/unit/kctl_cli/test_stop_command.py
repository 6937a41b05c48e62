from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl_agent.paths import process_identity
from tests.command_lines import Kctl

TOML = """
[fleet]
run_dir = "{run_dir}"
[kafka]
bootstrap_servers = "localhost:9092"
group = "g"
topics = ["t"]
"""


@pytest.fixture
def victim() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.shows("`kctl stop` never signals a process named by another user's pid file")
@pytest.mark.parametrize("is_ours", [True, False], ids=["open to all as /tmp is", "of another user"])
def test_a_pid_file_that_another_user_may_have_written_has_nothing_signalled(
    short_dir: Path, kctl: Kctl, victim: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch, is_ours: bool
) -> None:
    """The file could name any process of ours, or of root's."""
    run_dir = short_dir / "run"
    run_dir.mkdir()
    run_dir.chmod(0o1777 if is_ours else 0o755)
    found = process_identity(victim.pid)
    (run_dir / "master.pid").write_text(f"{found.pid} {found.start_ticks}")
    (short_dir / "kctl.toml").write_text(TOML.format(run_dir=run_dir))
    if not is_ours:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)

    ran = kctl("-c", str(short_dir / "kctl.toml"), "stop", "--timeout", "0.2")

    assert ran.code == (2 if os.geteuid() == 0 else 5)
    assert "other users can write to it" in ran.err or "you are not allowed to stop" in ran.err
    assert victim.poll() is None
