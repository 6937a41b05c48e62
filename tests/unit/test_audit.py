"""What is changed by hand is written down, before and after."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from kctl.audit import append, operation, user_log


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


def test_what_cannot_be_written_down_is_logged_and_done_all_the_same(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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


STRANGER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it acts in a folder of another user")


@pytest.fixture
def strangers_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir(mode=0o700)
    os.chown(folder, STRANGER, STRANGER)
    return folder


@as_root
@pytest.mark.parametrize("is_there", [True, False], ids=["a file that is there", "a file that is not"])
def test_root_neither_follows_a_link_that_the_owner_of_the_folder_has_put_there_nor_gives_its_target_away(
    tmp_path: Path, strangers_folder: Path, is_there: bool
) -> None:
    target = tmp_path / "passwd"
    if is_there:
        target.write_text("root")
    (strangers_folder / "operations.jsonl").symlink_to(target)

    with pytest.raises(OSError):
        append(strangers_folder / "operations.jsonl", {"operation": "storage clear"})

    assert target.exists() == is_there
    if is_there:
        assert (target.read_text(), target.stat().st_uid) == ("root", 0)


@as_root
@pytest.mark.parametrize("owner", [0, 1], ids=["of root", "of a third user"])
def test_root_does_not_write_to_a_second_name_of_another_file(
    tmp_path: Path, strangers_folder: Path, owner: int
) -> None:
    target = tmp_path / "shadow"
    target.write_text("root")
    os.chown(target, owner, owner)
    (strangers_folder / "operations.jsonl").hardlink_to(target)

    with pytest.raises(PermissionError, match="it is a link"):
        append(strangers_folder / "operations.jsonl", {"operation": "storage clear"})

    assert (target.read_text(), target.stat().st_uid) == ("root", owner)


@as_root
def test_root_is_not_held_up_by_a_pipe_that_nobody_reads(strangers_folder: Path) -> None:
    os.mkfifo(strangers_folder / "operations.jsonl")

    with pytest.raises(OSError):
        append(strangers_folder / "operations.jsonl", {"operation": "storage clear"})


@as_root
def test_a_file_that_root_makes_belongs_to_the_owner_of_the_folder_and_is_appended_to(strangers_folder: Path) -> None:
    path = strangers_folder / "operations.jsonl"

    append(path, {"n": 1})
    append(path, {"n": 2})

    assert lines(path) == [{"n": 1}, {"n": 2}]
    assert (path.stat().st_uid, path.stat().st_gid) == (STRANGER, STRANGER)


def test_without_a_fleet_it_is_the_users_own_file(tmp_path: Path) -> None:
    assert user_log({"XDG_STATE_HOME": str(tmp_path)}) == tmp_path / "kctl" / "audit.jsonl"
    assert user_log({"HOME": "/home/me"}) == Path("/home/me/.local/state/kctl/audit.jsonl")
