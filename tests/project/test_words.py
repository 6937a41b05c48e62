"""The words that CONTRIBUTING.md calls gone are nowhere: code, tests, docs and what is deployed."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HISTORY = {"CHANGELOG.md", "CONTRIBUTING.md"}
"""These may name what was."""


def gone() -> list[str]:
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("| gone | say |")[1].split("\n\n")[0]
    return [word for row in table.splitlines()[2:] for word in re.findall(r"`([^`]+)`", row.split("|")[1])]


def texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    names = [name for name in listed.stdout.decode().split("\0") if name and name not in HISTORY]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_the_table_has_words() -> None:
    assert len(gone()) > 5


@pytest.mark.parametrize("word", gone())
def test_a_word_that_is_gone_is_nowhere(word: str) -> None:
    pattern = re.compile(rf"(?<![\w.]){re.escape(word)}(?![\w-])".encode())

    assert [str(path.relative_to(ROOT)) for path in texts() if pattern.search(path.read_bytes())] == []
