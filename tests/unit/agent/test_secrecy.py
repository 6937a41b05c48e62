from __future__ import annotations

from pathlib import Path

import pytest

from kctl_agent.secrecy import check_private, read_private


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_file_of_the_user_or_of_a_group_is_read(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    file.chmod(mode)

    assert read_private(file) == "hunter2\n"
    check_private(file)


@pytest.mark.shows("files with secrets that every user can open are rejected")
@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_a_file_that_every_user_can_open_is_rejected_with_what_to_do(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    file.chmod(mode)

    for opened in (read_private, check_private):
        with pytest.raises(OSError, match=f"mode {mode:04o}.*chmod o= {file}") as refused:
            opened(file)
        assert "hunter2" not in str(refused.value)


def test_a_link_is_judged_by_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hunter2")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "link").symlink_to("secret")

    assert read_private(tmp_path / "link") == "hunter2"
