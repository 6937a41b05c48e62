"""Which processes `kctl stop` may signal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl_agent.paths import process_identity
from tests.unit.kctl_cli.conftest import Kctl

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


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it stops the fleet of another user")
def test_root_signals_no_process_of_another_user_than_the_fleets(
    short_dir: Path, kctl: Kctl, victim: subprocess.Popen[bytes]
) -> None:
    run_dir = short_dir / "run"
    run_dir.mkdir(mode=0o700)
    found = process_identity(victim.pid)
    (run_dir / "master.pid").write_text(f"{found.pid} {found.start_ticks}")
    os.chown(run_dir, 65534, 65534)
    (short_dir / "kctl.toml").write_text(TOML.format(run_dir=run_dir))

    ran = kctl("-c", str(short_dir / "kctl.toml"), "stop", "--timeout", "0.2")

    assert ran.code == 5
    assert "is not of the owner of" in ran.err
    assert victim.poll() is None
