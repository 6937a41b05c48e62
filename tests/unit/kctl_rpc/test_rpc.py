import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from kctl.errors import NoSocketFile
from kctl.master.reduction import COMMANDS
from kctl.reduce.base import Answer
from kctl.rows.workers import AgentState
from kctl.rpc.client import call
from kctl.rpc.decode import BadResult, decoded
from kctl.rpc.fan_out import AgentPool, Failed, FanOut, fan_out
from kctl_agent.errors import AgentTimeout, NotReady
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.encode import aged, encoded
from kctl_agent.replies.workers import PingReply, WorkerReply
from kctl_agent.rpc.messages import Request, Role
from kctl_agent.rpc.wire import JsonObject
from tests.replies import outcome_of, plain, raw
from tests.servers.scripted_agent import (
    Answers,
    BreaksFrame,
    Refuses,
    ScriptedAgent,
    SendsBytes,
    Stalls,
    Step,
    Vanishes,
)


class Fleet:
    def __init__(self, run_dir: Path, stack: ExitStack) -> None:
        self.run_dir, self.stack, self.pool = run_dir, stack, AgentPool()

    def agent(self, name: str, kafka_lag: Step | Sequence[Step]) -> ScriptedAgent:
        script = {"kafka_lag": kafka_lag, "workers": Answers({"rpc": "workers"})}
        return self.stack.enter_context(ScriptedAgent(self.run_dir, name, script))

    def listener(self, name: str) -> socket.socket:
        listener = self.stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(self.run_dir / f"{name}.sock"))
        return listener

    async def ask(self, *names: str, rpc: str = "kafka_lag", seconds: float = 5.0) -> FanOut[JsonObject]:
        sockets = {name: self.run_dir / f"{name}.sock" for name in names}
        deadline = asyncio.get_running_loop().time() + seconds
        return plain(await fan_out(self.pool, sockets, rpc, deadline=deadline))


@pytest.fixture
async def fleet(short_dir: Path) -> AsyncIterator[Fleet]:
    with ExitStack() as stack:
        fleet = Fleet(short_dir, stack)
        yield fleet
        fleet.pool.close()
        await asyncio.sleep(0)


async def test_an_agent_that_fails_is_named_with_the_reason_and_the_others_have_answered(fleet: Fleet) -> None:
    fleet.agent("breaks", BreaksFrame({"n": 1}))
    fleet.agent("garbles", SendsBytes(b"\x00\x00\x00\x02[]"))
    fleet.agent("good", Answers({"n": 1}))
    fleet.agent("refuses", Refuses(NotReady("not yet")))
    fleet.agent("stalls", Stalls())
    fleet.agent("vanishes", Vanishes())
    fleet.listener("deaf")
    fleet.listener("full").listen(0)
    fleet.stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(fleet.run_dir / "full.sock"))
    names = ("absent", "breaks", "deaf", "full", "garbles", "good", "refuses", "stalls", "vanishes")

    outcome = await fleet.ask(*names, seconds=0.5)

    assert [answer.sender for answer in outcome.answers] == ["good"]
    assert {failed.sender: failed.code for failed in outcome.failed} == {
        "absent": "unreachable",
        "breaks": "broken_frame",
        "deaf": "unreachable",
        "full": "timeout",
        "garbles": "bad_payload",
        "refuses": "not_ready",
        "stalls": "timeout",
        "vanishes": "unreachable",
    }
    assert outcome.failed[0] == Failed("absent", "unreachable", "there is no socket")


@pytest.mark.shows("all agents are asked under one deadline; missing ones are named")
@pytest.mark.alone
async def test_the_deadline_is_one_for_all_however_many_stall(fleet: Fleet) -> None:
    names = [f"worker-{number}" for number in range(5)]
    for name in names:
        fleet.agent(name, Stalls())
    clock = asyncio.get_running_loop().time
    started = clock()

    outcome = await fleet.ask(*names, seconds=0.3)

    assert 0.25 < clock() - started < 1.0
    assert outcome.failed == [Failed(name, "timeout", "no answer in time") for name in names]
    assert [failed.code for failed in (await fleet.ask(*names, seconds=-1)).failed] == ["timeout"] * 5


async def test_a_connection_that_was_kept_or_breaks_is_replaced_without_a_failure(fleet: Fleet) -> None:
    first = fleet.agent("a", Answers({"life": 1}))
    await fleet.ask("a")
    first.close()
    fleet.agent("a", Answers({"life": 2}))

    assert (await fleet.ask("a")).answers == [Answer("a", {"life": 2}, 0.0)]

    agent = fleet.agent("b", [Answers({"n": 1}), BreaksFrame({"n": 2}), Answers({"n": 3})])
    await fleet.ask("b")
    assert await fleet.ask("b") == FanOut([Answer("b", {"n": 3}, 0.0)], [])
    assert len(agent.requests) == 3


async def test_each_question_gets_its_own_answer_after_a_late_one_and_at_the_same_time(fleet: Fleet) -> None:
    released = threading.Event()
    fleet.agent("a", Stalls(until=released, then=Answers({"rpc": "kafka_lag"})))

    late = await fleet.ask("a", seconds=0.1)
    released.set()
    following = await fleet.ask("a", rpc="workers")

    assert [failed.code for failed in late.failed] == ["timeout"]
    assert following.answers == [Answer("a", {"rpc": "workers"}, 0.0)]

    fleet.agent("b", Answers({"rpc": "kafka_lag"}))
    outcomes = await asyncio.gather(fleet.ask("b"), fleet.ask("b", rpc="workers"))
    assert [answer.result["rpc"] for each in outcomes for answer in each.answers] == ["kafka_lag", "workers"]


QUESTION = Request(id="1", role=Role.EXTERNAL, rpc="kafka_lag", method="onKafkaLag", params={"worker": "worker-0"})


def test_there_is_no_socket_below_a_file(short_dir: Path) -> None:
    (short_dir / "file").touch()

    with pytest.raises(NoSocketFile, match="does not exist; run `kctl start`"):
        call(short_dir / "file" / "master.sock", QUESTION, 1.0)


def test_a_reply_that_trickles_does_not_extend_the_deadline(short_dir: Path) -> None:
    over = threading.Event()

    def trickle() -> None:
        connection, _ = listener.accept()
        with connection, suppress(BrokenPipeError):  # the caller has given up
            connection.sendall(b"\x00\x00\xff\xff")
            while not over.wait(0.05):
                connection.send(b" ", socket.MSG_NOSIGNAL)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(short_dir / "master.sock"))
        listener.listen()
        thread = threading.Thread(target=trickle)
        thread.start()
        with pytest.raises(AgentTimeout):
            call(short_dir / "master.sock", QUESTION, 0.3)
        over.set()
        thread.join()


@pytest.mark.parametrize(
    ("rpc", "result", "why"),
    [
        ("offset_checker", {"rows": [{"topic": "o", "partition": 0, "committed": 2**62}]}, "`$.rows[0].committed`"),
        ("ping", {"pid": True}, "got `bool` - at `$.pid`"),
        ("workers", {"sinker": {"handled": -1}}, "Expected `int` >= 0 - at `$.sinker.handled`"),
        ("workers", {"batch_seconds_total": -1.0}, "Expected `float` >= 0.0 - at `$.batch_seconds_total`"),
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
"""  # when two threads made a decoder at once, 16 of 25 such processes ended by signal 11 (msgspec 0.22)


@pytest.mark.parametrize("attempt", range(5))
def test_threads_that_decode_for_the_first_time_at_once_end_no_process(attempt: int) -> None:
    ended = subprocess.run([sys.executable, "-c", AT_ONCE], check=False)

    assert ended.returncode == 0, f"attempt {attempt}"
