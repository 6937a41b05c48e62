from __future__ import annotations

import subprocess
import sys

import pytest

from kctl.master.reduction import COMMANDS
from kctl.reduce.base import Answer
from kctl.rows.workers import AgentState
from kctl.rpc.decode import BadResult, decoded
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.encode import aged, encoded
from kctl_agent.replies.workers import PingReply, WorkerReply
from kctl_agent.rpc.wire import JsonObject
from tests.replies import outcome_of, raw


@pytest.mark.parametrize(
    ("rpc", "result", "why"),
    [
        ("offset_checker", {"rows": [{"topic": "o", "partition": 0, "committed": 2**62}]}, "`$.rows[0].committed`"),
        ("ping", {"pid": True}, "got `bool` - at `$.pid`"),
        ("workers", {"sinker": {"handled": -1}}, "Expected `int` >= 0 - at `$.sinker.handled`"),
        ("workers", {"state_seconds": 2.0**62}, "Expected `float` < 4.611686018427388e+18 - at `$.state_seconds`"),
    ],
)
def test_a_number_that_no_process_can_mean_is_a_bad_result(rpc: str, result: JsonObject, why: str) -> None:
    [failed] = COMMANDS[rpc].decoded(outcome_of(Answer("guest", result, 0.1))).failed

    assert (failed.code, why in failed.message) == ("bad_result", True)


def test_states_of_a_newer_release_and_half_surrogate_pairs_are_read() -> None:
    heard = decoded(PingReply, raw({"pid": 7, "state": "meditating", "mood": "calm"}))

    assert (heard.pid, heard.state) == (7, "meditating")
    assert decoded(PingReply, raw({"pid": 7, "state": "throttled"})).state == AgentState.THROTTLED
    assert decoded(WorkerReply, raw({"last_error": "\udcff"})).last_error == "\udcff"
    with pytest.raises(BadResult, match="not JSON in UTF-8"):
        decoded(WorkerReply, b'{"last_error": "\xff"}')


def test_what_is_kept_grows_older() -> None:
    reply = StorageReply("file:/x", age_seconds=1.0, table=TableReply(7, last_commit_seconds=2.0))

    older = aged(reply, 0.5)

    assert older == StorageReply("file:/x", age_seconds=1.5, table=TableReply(7, last_commit_seconds=2.5))
    assert encoded(reply, 0.5) == encoded(older)
    assert aged(StorageReply("file:/x"), 0.5) == StorageReply("file:/x"), "what is not known has no age"


AT_ONCE = """
import contextlib, sys, threading
sys.setswitchinterval(1e-6)
from kctl.hosts import roster
from kctl.rpc.decode import BadResult, decoded
from kctl_agent.replies import workers
host = b'{"hosts": [{"name": "a", "url": "http://b:1", "incarnation": 1}]}'
kinds = [kind for kind in vars(workers).values() if hasattr(kind, "__dataclass_fields__")]
together = threading.Barrier(8)
def run(kinds):
    together.wait()
    roster.decoded(roster.Roster, host)
    for kind in kinds:
        with contextlib.suppress(BadResult):
            decoded(kind, b'{"name": "a", "state": "running", "pid": 1, "events": [{"at": 1, "kind": "x"}]}')
threads = [threading.Thread(target=run, args=(kinds[:: 1 if number % 2 else -1],)) for number in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""
"""When two threads made a decoder at once, 16 of 25 such processes ended by signal 11 (msgspec 0.22)."""


@pytest.mark.parametrize("attempt", range(5))
def test_threads_that_decode_for_the_first_time_at_once_end_no_process(attempt: int) -> None:
    ended = subprocess.run([sys.executable, "-c", AT_ONCE], check=False)

    assert ended.returncode == 0, f"attempt {attempt}"
