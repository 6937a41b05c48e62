"""The folders that a master makes, or finds."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from kctl.children import PRIVATE
from kctl.config import load
from kctl.master.checks import make_folders

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
