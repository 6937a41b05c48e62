from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from kctl.master import process_log
from kctl.master.process_log import KEPT_BYTES, LogRotation, ProcessLog, rotate
from kctl.regular_files import rotated

LIMIT = 256 * 1024
WRITER = """
import sys
for n in range(int(sys.argv[2])):
    sys.stdout.write(f"{sys.argv[1]} {n} {'x' * (n % 200)}\\n")
    sys.stdout.flush()
"""
LINES = 20_000


@pytest.fixture
def can_collapse(tmp_path: Path) -> bool:
    path = tmp_path / "trial"
    path.write_bytes(b"x" * 100_000)
    with path.open("r+b") as file:
        return process_log._collapse(file, 65536)


@pytest.mark.shows("logs are rotated while processes write them; no line is lost or doubled")
def test_rotations_lose_and_repeat_no_line(tmp_path: Path, can_collapse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_log, "_FLOOD_LIMITS", 1000)  # on a loaded machine this counts as a flood
    if not can_collapse:
        pytest.skip("the file system of the temporary folder cannot remove a file's beginning (ext4 and XFS can)")
    log, written, rotations = tmp_path / "log", b"", 0
    with log.open("ab") as out:
        writers = [
            subprocess.Popen([sys.executable, "-c", WRITER, str(number), str(LINES)], stdout=out) for number in range(3)
        ]
    while any(writer.poll() is None for writer in writers):
        if rotate(log, 2 * KEPT_BYTES):
            written += rotated(log).read_bytes()
            rotations += 1
    written += log.read_bytes()

    assert rotations > 1
    found: dict[str, list[int]] = defaultdict(list)
    for line in written.decode().splitlines():
        writer, number, filling = (line + " ").split(" ")[:3]
        assert filling == "x" * (int(number) % 200)
        found[writer].append(int(number))
    assert found == {str(number): list(range(LINES)) for number in range(3)}


@pytest.mark.parametrize("is_collapsed", [True, False], ids=["collapsed", "truncated"])
def test_what_is_moved_and_what_stays_are_all_that_was_written_and_writing_goes_on(
    is_collapsed: bool, tmp_path: Path, can_collapse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if is_collapsed and not can_collapse:
        pytest.skip("the file system cannot")
    if not is_collapsed:
        monkeypatch.setattr(process_log, "_collapse", lambda *_: False)
    log = tmp_path / "log"
    lines = b"".join(b"line %d\n" % number for number in range(40_000))
    with log.open("ab", buffering=0) as out:
        out.write(lines)

        removed = rotate(log, LIMIT)
        out.write(b"after\n")

    assert removed > 0
    assert rotated(log).read_bytes() + log.read_bytes() == lines + b"after\n"
    assert log.stat().st_size < KEPT_BYTES + 8192
    assert rotate(log, LIMIT) == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "trial") == ["log", "log.1"]


def test_of_a_flood_the_newest_part_is_kept_as_private_as_the_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"".join(b"line %d\n" % number for number in range(200_000)))  # 2.3 MB
    log.chmod(0o600)

    rotate(log, LIMIT)

    assert rotated(log).stat().st_mode & 0o777 == 0o600
    assert rotated(log).stat().st_size <= 4 * LIMIT + KEPT_BYTES + 4096 < 2_000_000
    assert (rotated(log).read_bytes() + log.read_bytes()).endswith(b"line 199998\nline 199999\n")


def test_a_log_that_cannot_be_rotated_is_reported_once_and_stays_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process_log, "LOG_LIMIT_BYTES", LIMIT)
    caplog.set_level(logging.INFO)
    path = tmp_path / "log"
    path.write_bytes(b"line\n" * 100_000)
    rotated(path).mkdir()
    rotation = LogRotation()

    rotation([ProcessLog(path)])
    rotation([ProcessLog(path)])
    refused = [record.getMessage() for record in caplog.records]
    whole = path.stat().st_size
    rotated(path).rmdir()
    rotation([ProcessLog(path), ProcessLog(tmp_path / "nothing")])

    assert refused == [f"action=log_not_rotated log={tmp_path / 'log'}: Is a directory"]
    assert whole == 500_000
    assert rotated(path).read_bytes() + path.read_bytes() == b"line\n" * 100_000
    assert caplog.records[-1].getMessage().startswith("action=log_rotated log=log bytes=")


OWN = "import sys; from pathlib import Path; from kctl.master.process_log import is_own_output\n"


@pytest.mark.parametrize(("mode", "expected"), [("ab", "True"), ("wb", "False")])
def test_the_masters_own_log_is_what_its_output_is_appended_to(mode: str, expected: str, tmp_path: Path) -> None:
    """A rotation would tear a log that is written from its start, as `>` of a shell does."""
    path = tmp_path / "master.log"
    with path.open(mode) as out:
        code = OWN + "print(is_own_output(Path(sys.argv[1])))"
        subprocess.run([sys.executable, "-c", code, str(path)], stdout=out, stderr=subprocess.DEVNULL, check=True)

    assert path.read_text() == f"{expected}\n"
    assert not process_log.is_own_output(tmp_path / "nothing")
    assert not process_log.is_own_output(path)


@pytest.mark.shows("no log is read, written or shortened through a link or a pipe")
def test_a_link_or_a_pipe_in_place_of_a_log_is_not_read_written_or_shortened(tmp_path: Path) -> None:
    target = tmp_path / "somebodys"
    target.write_bytes(b"secret\n" * LIMIT)
    kept = target.read_bytes()
    link, pipe = ProcessLog(tmp_path / "link.log"), ProcessLog(tmp_path / "pipe.log")
    link.path.symlink_to(target)
    os.mkfifo(pipe.path)

    with contextlib.suppress(OSError):
        rotate(link.path, 0)
    with pytest.raises(OSError, match="not a regular file"):
        rotate(pipe.path, -1)
    with pytest.raises(OSError):
        link.open()

    assert link.last_lines(5) == []
    assert pipe.last_lines(5) == []
    assert target.read_bytes() == kept
    assert not rotated(link.path).exists()
