"""The folders that a master makes, or finds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.children import PRIVATE
from kctl.config import load
from kctl.errors import RunDirUnusable
from kctl.start.checks import make_folders

TOML = """
[kafka]
bootstrap_servers = "localhost:9092"
group = "g"
topics = ["t"]
"""


@pytest.fixture
def private() -> Iterator[None]:
    """As in a master."""
    before = os.umask(PRIVATE)
    yield
    os.umask(before)


def test_folders_are_made_for_this_user_alone_and_one_that_all_can_enter_is_reported(
    private: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "kctl.toml").write_text(TOML)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs").chmod(0o755)

    make_folders(load(tmp_path / "kctl.toml", {}))

    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert [record.getMessage() for record in caplog.records] == [
        f"action=open_folder path={tmp_path / 'logs'} mode=0755: all users of this machine can look into it"
    ]


@pytest.mark.parametrize("folder", ["data", "logs"])
def test_a_folder_that_every_user_can_write_to_is_refused(tmp_path: Path, folder: str) -> None:
    (tmp_path / "kctl.toml").write_text(TOML)
    (tmp_path / folder).mkdir()
    (tmp_path / folder).chmod(0o1777)

    with pytest.raises(RunDirUnusable, match=rf"{folder} has mode 1777, all users .* chmod o-w"):
        make_folders(load(tmp_path / "kctl.toml", {}))


def test_a_folder_that_its_group_can_write_to_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kctl.toml").write_text(TOML)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs").chmod(0o770)

    make_folders(load(tmp_path / "kctl.toml", {}))

    assert "its group can replace what is in it" in caplog.text


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a folder of another user")
def test_a_folder_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kctl.toml").write_text(TOML)
    (tmp_path / "data").mkdir(mode=0o700)
    os.chown(tmp_path / "data", 65534, 65534)

    with pytest.raises(RunDirUnusable, match="belongs to uid 65534"):
        make_folders(load(tmp_path / "kctl.toml", {}))
