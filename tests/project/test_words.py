"""The words that CONTRIBUTING.md calls gone are nowhere: code, tests, docs and what is deployed."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXEMPT = {"CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"}
"""The first two may name what was; the last is not ours to word."""
VENDORED = "kctl/http/page/vendor/"
"""What is there is not ours to word either."""


@dataclass(frozen=True)
class Gone:
    """A word, in which `*` stands for any letters of an identifier, and the folders it is gone from (empty: all)."""

    word: str
    folders: tuple[str, ...] = ()

    @property
    def pattern(self) -> re.Pattern[bytes]:
        text = re.escape(self.word).replace(r"\*", r"\w*")
        return re.compile(rf"(?<!\w){text}(?![\w-])".encode())

    def covers(self, name: str) -> bool:
        return not self.folders or name.startswith(self.folders)

    def is_in(self, text: bytes) -> bool:
        """The pattern takes a quarter of a second for all texts, and most have not even the letters."""
        return all(letters in text for letters in self.word.encode().split(b"*")) and bool(self.pattern.search(text))


def gone(contributing: str) -> list[Gone]:
    table = contributing.split("| gone | use | from |")[1].split("\n\n")[0]
    rows = [row.split("|") for row in table.splitlines()[2:]]
    return [
        Gone(word, tuple(re.findall(r"`([^`]+)`", row[3]))) for row in rows for word in re.findall(r"`([^`]+)`", row[1])
    ]


def texts() -> Iterator[tuple[str, bytes]]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    for name in subprocess.check_output(command, cwd=ROOT, text=True).split("\0"):
        if name not in EXEMPT and not name.startswith(VENDORED) and (ROOT / name).is_file():
            yield name, (ROOT / name).read_bytes()


def test_a_row_names_words_wildcards_and_folders() -> None:
    table = "| gone | use | from |\n|---|---|---|\n| `gatekeeper*` | `x` | `kctl/` |\n| `a.b`, `c` | - | |\n\nEnd"

    assert gone(table) == [Gone("gatekeeper*", ("kctl/",)), Gone("a.b"), Gone("c")]
    assert Gone("gatekeeper*").pattern.search(b"no gatekeepers_ here")
    assert not Gone("gatekeeper*").pattern.search(b"an othergatekeeper")


@pytest.mark.shows("words that CONTRIBUTING.md lists as gone appear nowhere")
def test_a_word_that_is_gone_is_nowhere() -> None:
    words = gone((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))

    assert len(words) > 5
    found = [(word.word, name) for name, text in texts() for word in words if word.covers(name) and word.is_in(text)]
    assert found == [], "see Words in CONTRIBUTING.md"
