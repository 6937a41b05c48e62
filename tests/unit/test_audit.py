from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kctl.audit import append, operation, user_log
from kctl.errors import ConfigError


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_change_leaves_a_line_before_and_one_after_it(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "operations.jsonl"

    with operation(path, "storage clear", {"topic": "orders"}) as running:
        [before] = lines(path)
        running.text = "3 messages removed"

    assert (before["operation"], before["state"], before["params"]) == ("storage clear", "running", {"topic": "orders"})
    assert (before["uid"], before["via"], before["ended_at"]) == (os.getuid(), "cli", None)
    [_, after] = lines(path)
    assert (after["id"], after["state"], after["text"]) == (before["id"], "done", "3 messages removed")
    assert after["ended_at"] >= after["started_at"] == before["started_at"]


@pytest.mark.parametrize("error", [ValueError("the broker refused"), KeyboardInterrupt()])
def test_a_change_that_fails_reports_the_reason(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "audit.jsonl"

    with pytest.raises(type(error)), operation(path, "kafka delete-topic", {}):
        raise error

    assert (lines(path)[-1]["state"], lines(path)[-1]["text"]) == ("failed", str(error) or "KeyboardInterrupt")


def test_a_failing_log_is_logged_and_the_work_done(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    changed = False

    with operation(tmp_path / "logs" / "operations.jsonl", "storage clear", {}):
        changed = True

    assert changed
    assert "action=audit_failed" in caplog.text


def test_only_its_owner_may_read_the_file_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "kctl" / "audit.jsonl"
    before = os.umask(0)
    try:
        append(path, {"topic": "käse\x1b[31m"})
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_bytes().isascii()
    assert b"\x1b" not in path.read_bytes()


def test_a_link_is_not_followed_and_a_pipe_without_a_reader_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "operations.jsonl"
    path.symlink_to(tmp_path / "target")

    with pytest.raises(OSError, match="it is a symbolic link"):
        append(path, {"operation": "storage clear"})
    assert not (tmp_path / "target").exists()

    path.unlink()
    os.mkfifo(path)
    with pytest.raises(OSError):
        append(path, {"operation": "storage clear"})


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of another user")
def test_root_writes_nothing_below_the_home_of_another_user(tmp_path: Path) -> None:
    """`sudo -E` keeps HOME."""
    os.chown(tmp_path, 65534, 65534)

    with pytest.raises(ConfigError, match="sudo -u nobody kctl …"):
        user_log({"HOME": str(tmp_path)})


def test_without_a_fleet_it_is_the_users_own_file(tmp_path: Path) -> None:
    assert user_log({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "kctl" / "audit.jsonl"
    assert user_log({"HOME": str(tmp_path / "me")}) == tmp_path / "me" / ".local/state/kctl/audit.jsonl"


def test_half_a_line_that_a_full_disk_has_taken_is_an_error_and_swallows_no_other(tmp_path: Path) -> None:
    path = tmp_path / "operations.jsonl"
    script = """
import pathlib, resource, signal, sys
from kctl.audit import append
path = pathlib.Path(sys.argv[1])
append(path, {"id": 1})
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 3, resource.RLIM_INFINITY))
append(path, {"id": 2})
"""
    ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)

    append(path, {"id": 3})

    assert ran.stderr.endswith("No space left on device\n")
    assert path.read_text() == '{"id": 1}\n{"i\n{"id": 3}\n'
