import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.sinker.in_flight import InFlightClaim, Part, decide
from kctl_agent.sinker.sinker import DIED, UNKNOWN, Journal
from kctl_agent.storage.causes import RETURNED_FALSE
from kctl_agent.storage.claim import Claim
from tests.conformance.given import fill
from tests.scratch_storage import ScratchStorage


def claimed(count: int = 3, tries: int = 0) -> Claim:
    storage = ScratchStorage(block_messages=5)
    fill(storage, count)
    for _ in range(tries):
        storage.claim("dead", count, 60)
        storage.release("dead", count_try=True)
    (claim,) = storage.claim("a", count, 60)
    return claim


@pytest.mark.parametrize(
    ("acks", "tries", "max_tries", "ordered", "settled", "dead", "counts"),
    [
        ([True, False, True], 0, 3, False, [True, False, True], {}, (2, 1, True)),
        ([True, False, True], 2, 3, False, [True, False, True], {1: RETURNED_FALSE}, (2, 0, True)),
        *(([None, None, None], tries, 1, False, [False] * 3, {}, (0, 3, True)) for tries in (0, 2, 7)),
        ([True, False, False, True], 0, 1, True, [True, False, False, True], {1: RETURNED_FALSE}, (2, 1, True)),
        ([True, None, None], 1, 3, False, [True, False, False], {}, (1, 2, False)),
    ],
    ids=["refused", "too often", *["failed together"] * 3, "in order the first alone", "stopped in between"],
)
def test_what_is_not_acknowledged_comes_again_or_is_dead(
    acks: Any, tries: int, max_tries: int, ordered: bool, settled: Any, dead: Any, counts: Any
) -> None:
    one = InFlightClaim(claimed(len(acks), tries), acks, shared_error="" if True in acks else "it raised")
    decision = decide(one, max_tries=max_tries, ordered=ordered)

    assert (decision.acks, decision.dead_lettered) == (settled, dead)
    assert (decision.handled, decision.again, decision.is_failure) == counts


def test_messages_that_got_reasons_are_blamed_with_their_own() -> None:
    one = InFlightClaim.of(claimed(4, tries=2))

    Part(one, 1, 4).acknowledged([True, "no date", "no amount"])

    assert (one.acks, one.errors) == ([None, True, False, False], {2: "no date", 3: "no amount"})
    decision = decide(one, max_tries=3, ordered=False)
    assert decision.dead_lettered == one.errors, "each with its own, and the untried one is none"
    assert (decision.acks, decision.handled, decision.again) == ([False, True, False, False], 1, 1)


@pytest.mark.parametrize(
    ("notes", "acks", "errors"),
    [
        (["begin"], [False, None, None], {0: DIED}),
        (["begin", "done", "begin"], [True, False, None], {1: DIED}),
        (["begin", "failed", "begin", "done"], [False, True, None], {0: UNKNOWN}),
    ],
)
def test_a_journal_names_what_a_dead_sinker_had_handled_and_what_was_in_flight(
    notes: list[str], acks: list[bool | None], errors: dict[int, str], tmp_path: Path
) -> None:
    journal = Journal(tmp_path / "in-flight")
    claim = claimed()
    journal.open(claim)
    for note in notes:
        journal.begin() if note == "begin" else journal.end(note == "done")

    left = Journal(tmp_path / "in-flight").left_behind()

    assert left is not None
    assert (left.claim, left.acks, left.errors) == (claim, acks, errors)
    journal.clear()
    assert Journal(tmp_path / "in-flight").left_behind() is None


def test_what_is_no_journal_of_this_release_yields_nothing_and_what_it_pickles_is_not_run(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert [Journal(tmp_path / name).left_behind() for name in ("pipe", "folder")] == [None, None]

    older = pickle.dumps(_Planted(tmp_path / "trace"))
    planted = len(older).to_bytes(8, "big") + older + b"?"
    for content in (b"", b"\0" * 8, b"\0\0\0\0\0\0\0\x09garbage", b"\0" * 7 + b"\x03abc?", planted):
        (tmp_path / "in-flight").write_bytes(content)

        assert Journal(tmp_path / "in-flight").left_behind() is None
    assert not (tmp_path / "trace").exists()


def test_a_full_disk_is_met_before_a_message_is_handled(tmp_path: Path) -> None:
    """Handling takes no more room than the journal had before."""
    path = tmp_path / "in-flight"
    journal = Journal(path)
    journal.open(claimed())
    taken = path.stat().st_blocks, path.stat().st_size
    for _ in range(3):
        journal.begin()
        journal.end(ack=True)
        left = Journal(path).left_behind()

    assert (path.stat().st_blocks, path.stat().st_size) == taken
    assert (left and left.acks) == [True] * 3
    journal.clear()


class _Planted:
    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.trace),)


def test_a_journal_is_neither_read_nor_written_through_a_link(tmp_path: Path) -> None:
    claim = claimed()
    elsewhere = Journal(tmp_path / "elsewhere")
    elsewhere.open(claim)
    elsewhere.begin()
    written = (tmp_path / "elsewhere").read_bytes()
    for link in (Path.symlink_to, Path.hardlink_to):
        journal = Journal(tmp_path / "in-flight")
        link(tmp_path / "in-flight", tmp_path / "elsewhere")

        assert journal.left_behind() is None
        journal.open(claim)
        journal.clear()

        assert (tmp_path / "elsewhere").read_bytes() == written, "what the link named is as it was"
    elsewhere.clear()
