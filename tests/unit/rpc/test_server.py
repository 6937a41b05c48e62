"""See also tests/conformance/sockets.py."""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from kctl.rpc.client import Reply
from kctl_agent.errors import BrokenFrame, CommandFailed, NotReady
from kctl_agent.replies.describe import Param
from kctl_agent.rpc.commands import COMMANDS, AgentCommand
from kctl_agent.rpc.server import AcceptedConnection, AgentServer
from kctl_agent.rpc.snapshot import Snapshot
from kctl_agent.rpc.wire import HEADER_BYTES, MAX_REQUEST_BYTES, JsonObject
from kctl_agent.spark.gateway import ask
from tests.caller import Caller, question
from tests.conformance.sockets import Sockets
from tests.servers.scripted_agent import Answers, BreaksFrame, Refuses, ScriptedAgent, Stalls, Step, Vanishes
from tests.unit.rpc.conftest import Bench

BIG = AgentCommand(
    "big",
    lambda _snapshot, params, _now: {"text": "x" * params["size"]},
    "for this test",
    (Param("size", "integer", ""),),
)
WITH_BIG = COMMANDS | {"big": BIG}
SHORT_SECONDS = 0.2


class ServedAgent:
    large = question("big", size=1_000_000)

    def __init__(self, bench: Bench, snapshot: Snapshot) -> None:
        self.path, self.connect = bench.path, bench.connect
        self._bench, self._snapshot = bench, snapshot

    def serve(self, *, write_timeout_seconds: float | None = None, **limits: Any) -> None:
        if write_timeout_seconds is not None:
            limits["frame_timeout_seconds"] = write_timeout_seconds
        self._server = self._bench.serve(self._snapshot, commands=WITH_BIG, **limits)

    def stop(self) -> None:
        self._server.close()

    def is_answer(self, rpc: str, reply: Reply) -> bool:
        return ("rows" in reply.result) == (rpc == "offset_checker")

    def are_counted(self, *mistakes: str) -> bool:
        return self._server.faults.counts == dict.fromkeys(mistakes, 1)


@pytest.fixture
def served(bench: Bench, snapshot: Snapshot) -> ServedAgent:
    return ServedAgent(bench, snapshot)


class TestSocket(Sockets): ...


def test_a_caller_that_has_sent_all_and_closed_its_side_still_gets_its_replies(bench: Bench) -> None:
    bench.serve(commands=WITH_BIG)
    caller = bench.connect()

    caller.send(b"".join(question("big", str(number), size=200_000) for number in range(20)))
    caller.socket.shutdown(socket.SHUT_WR)

    assert [caller.read().id for _ in range(20)] == [str(number) for number in range(20)]
    assert caller.is_ended()


def test_a_client_rejected_while_still_sending_can_read_why(bench: Bench) -> None:
    bench.serve()
    caller = bench.connect()

    caller.send(b"\xff\xff\xff\xff" + b"x" * 1_000_000)

    reply = caller.read()
    assert (reply.error and reply.error.code) == "frame_too_large"


def test_a_frame_that_trickles_in_has_no_longer_than_a_silent_one(bench: Bench) -> None:
    server = bench.serve(frame_timeout_seconds=SHORT_SECONDS)
    caller = bench.connect()
    pause, began = threading.Event(), monotonic()

    caller.send(MAX_REQUEST_BYTES.to_bytes(HEADER_BYTES, "big"))
    with suppress(BrokenPipeError):
        while monotonic() - began < 10:
            caller.send(b" ")
            pause.wait(SHORT_SECONDS / 10)

    assert monotonic() - began < 5
    assert server.faults.counts == {"an incomplete frame, then silence": 1}


def test_a_connection_that_goes_on_asking_outlives_the_idle_timeout(bench: Bench) -> None:
    bench.serve(idle_timeout_seconds=1.0)
    caller, pause, began = bench.connect(), threading.Event(), monotonic()

    while monotonic() - began < 1.3:
        assert caller.ask("ping").ok
        pause.wait(0.05)


def test_for_a_slow_reader_one_reply_is_held_and_all_come_in_order_in_the_end(bench: Bench) -> None:
    made: list[int] = []

    def make(_snapshot: Snapshot, _params: JsonObject, _now: float) -> JsonObject:
        made.append(1)
        return {"text": "x" * 1_000_000}

    bench.serve(commands=COMMANDS | {"big": AgentCommand("big", make, "")})
    slow, good = bench.connect(), bench.connect()
    asked = [str(number) for number in range(30)]

    slow.send(b"".join(question("big", id_) for id_ in asked))
    assert all(good.ask("ping").ok for _ in range(100))

    assert len(made) == 1
    assert [slow.read().id for _ in asked] == asked
    assert slow.ask("ping").ok


def test_a_bug_in_the_loop_costs_one_connection_and_is_counted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    server = bench.serve()
    unlucky, lucky = bench.connect(), bench.connect()
    assert lucky.ask("ping").ok
    on_event = AcceptedConnection.on_event

    def fail_once(self: AcceptedConnection, mask: int, now: float) -> bool:
        monkeypatch.setattr(AcceptedConnection, "on_event", on_event)
        raise ZeroDivisionError

    monkeypatch.setattr(AcceptedConnection, "on_event", fail_once)
    unlucky.send(question("ping"))

    assert unlucky.is_ended()
    assert lucky.ask("ping").ok
    assert [what.split(" at ")[0] for what in server.faults.counts] == ["a connection failed: ZeroDivisionError"]


@pytest.mark.shows("50 agents opened and closed in one process leave no thread, socket or file")
def test_fifty_lives_leave_descriptors_and_threads_as_they_were(short_dir: Path) -> None:
    def one_life() -> None:
        with AgentServer(short_dir, "worker-0"), Caller(short_dir / "worker-0.sock") as caller:
            assert caller.ask("ping").ok

    one_life()
    descriptors, threads = len(os.listdir("/proc/self/fd")), threading.active_count()

    for _ in range(50):
        one_life()
    AgentServer(short_dir, "worker-0").close()  # was never started

    assert (len(os.listdir("/proc/self/fd")), threading.active_count()) == (descriptors, threads)
    assert os.listdir(short_dir) == []


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Refuses(NotReady("not yet")), CommandFailed),
        (Stalls(), TimeoutError),
        (Vanishes(), ConnectionResetError),
        (BreaksFrame(), BrokenFrame),
    ],
)
def test_a_result_is_returned_and_anything_else_is_raised(short_dir: Path, step: Step, error: type[Exception]) -> None:
    socket = short_dir / "engine.sock"
    with pytest.raises(FileNotFoundError):
        ask(socket, "gateway", {}, 0.3)

    with ScriptedAgent(short_dir, "engine", {"gateway": [Answers({"accepted": True}), step]}) as agent:
        assert ask(socket, "gateway", {"name": "worker-0"}, 5.0) == {"accepted": True}
        with pytest.raises(error):
            ask(socket, "gateway", {}, 0.3)

    assert (agent.requests[0].rpc, agent.requests[0].params) == ("gateway", {"name": "worker-0"})
