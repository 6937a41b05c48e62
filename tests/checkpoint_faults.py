"""Recorded checkpoints and faults in them, with the verdict of `kctl checkpoint show`;
tests/acceptance/test_checkpoint_faults.py compares it with Spark.
"""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

RECORDED = Path(__file__).parent / "unit" / "recorded" / "checkpoints"
NEXT_OFFSETS = 18  # in `plain`, whose three batches end at 10, 15 and 18 in each partition


class Fault(NamedTuple):
    """`starts` is kctl's verdict, or None if it depends on what the checkpoint does not show. `words` are part of the
    reason."""

    make: Callable[[Path], object]
    starts: bool | None
    words: str = ""


def copied(checkpoint: Path, to: Path, **topics: str) -> Path:
    shutil.copytree(checkpoint, to)
    for file in [*to.glob("offsets/[0-9]*"), *to.glob("sources/*/0")] if topics else ():
        text = file.read_text()
        for old, new in topics.items():
            text = text.replace(f'"{old}"', f'"{new}"')
        file.write_text(text)
    return to


def newest(folder: Path) -> Path:
    return max((each for each in folder.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))


def removed(file: Path) -> None:
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _edited(name: str, edit: Callable[[str], str], *, keeps_crc: bool = False) -> Callable[[Path], object]:
    def make(checkpoint: Path) -> None:
        file = checkpoint / name
        text = file.read_text()
        assert edit(text) != text
        file.write_text(edit(text))
        if not keeps_crc:
            file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    return make


def _removed(*names: str) -> Callable[[Path], object]:
    def make(checkpoint: Path) -> None:
        for path in (checkpoint / name for name in names):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                removed(path)

    return make


def _lower(text: str) -> str:
    return re.sub(r'"([01])":18', r'"\1":12', text)


def _without_newest_state(checkpoint: Path) -> None:
    version = int(newest(checkpoint / "commits").name) + 1
    removed(checkpoint / f"state/0/0/{version}.delta")


FAULTS = {
    "nothing": Fault(lambda _: None, True),
    "the newest commit is missing": Fault(_removed("commits/2"), True),
    "an older commit is missing": Fault(_removed("commits/1"), True),
    "two commits are missing": Fault(_removed("commits/1", "commits/2"), True, "repeats batch 2 alone"),
    "all commits are missing": Fault(_removed("commits"), True, "commits/ is empty"),
    "the newest commit is empty": Fault(_edited("commits/2", lambda _: ""), False, "commits/2 is empty"),
    "the newest commit is truncated": Fault(_edited("commits/2", lambda text: text[:-5]), False, "commits/2"),
    "the newest offsets are empty": Fault(_edited("offsets/2", lambda _: ""), False, "offsets/2 is empty"),
    "the newest offsets are truncated": Fault(_edited("offsets/2", lambda text: text[:-8]), False, "offsets/2"),
    "the newest offsets end in their metadata": Fault(
        _edited("offsets/2", lambda text: text[:100]), False, "offsets/2"
    ),
    "the newest offsets lack their source": Fault(
        _edited("offsets/2", lambda text: text.rpartition("\n")[0]), False, "names no source"
    ),
    "the second newest offsets are empty": Fault(_edited("offsets/1", lambda _: ""), False, "offsets/1 is empty"),
    "a source is added": Fault(
        _edited("offsets/2", lambda text: f"{text}\n{text.splitlines()[-1]}"), False, "2 sources"
    ),
    "a gap before the newest offsets": Fault(_removed("offsets/1"), False, "offsets/1 is missing"),
    "a gap in offsets and commits": Fault(_removed("offsets/1", "commits/1"), None, "asynchronous"),
    "a gap further back": Fault(_removed("offsets/0"), True),
    "metadata is missing": Fault(_removed("metadata"), None, "metadata is missing"),
    "metadata is empty": Fault(_edited("metadata", lambda _: ""), False, "metadata is empty"),
    "metadata has no id": Fault(_edited("metadata", lambda text: text.replace("-", "0")), False, "no query id"),
    "offsets with a wrong .crc": Fault(
        _edited("offsets/2", lambda text: text.replace('TimestampMs":1', 'TimestampMs":2'), keeps_crc=True), True
    ),
    "a commit with a wrong .crc": Fault(
        _edited("commits/2", lambda text: text.replace(":", ": ", 1), keeps_crc=True), True
    ),
    "metadata with a wrong .crc": Fault(
        _edited("metadata", lambda text: text.replace(":", ": ", 1), keeps_crc=True), True
    ),
    "offsets of an unknown version": Fault(
        _edited("offsets/2", lambda text: text.replace("v1", "v99", 1)), None, "that kctl does not know"
    ),
    "a commit of an unknown version": Fault(
        _edited("commits/2", lambda text: text.replace("v1", "v99", 1)), None, "that kctl does not know"
    ),
    "two drivers, the lower batch planned": Fault(
        lambda checkpoint: (_removed("commits/2")(checkpoint), _edited("offsets/2", _lower)(checkpoint)),
        False,
        "two drivers",
    ),
    "two drivers, the lower batch committed": Fault(_edited("offsets/2", _lower), True, "two drivers"),
    "an older copy restored": Fault(_removed("offsets/2", "commits/2"), True),
    "older offsets restored under newer commits": Fault(_removed("offsets/2"), False, "CONCURRENT_STREAM_LOG_UPDATE"),
    "all offsets are missing": Fault(_removed("offsets"), False, "is newer than all of offsets/"),
    "sources/ is missing": Fault(_removed("sources"), True),
}

STATE_FAULTS = {
    "nothing": Fault(lambda _: None, True),
    "the state is missing": Fault(_removed("state"), None, "there is no state/"),
    "the newest version of a state is missing": Fault(_without_newest_state, False, "state/0/0 ends at version"),
}
