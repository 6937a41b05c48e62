"""The scripted agent follows its script, so that what is tested with it is the other side."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl_agent.errors import BrokenFrame
from tests.caller import Caller, question
from tests.servers.scripted_agent import Answers, BreaksFrame, ScriptedAgent, Stalls, Step, Vanishes

Connect = Callable[[Path], Caller]

LAG = Answers({"total": 3}, age_seconds=0.4)


@pytest.fixture
def socket_file(short_dir: Path) -> Path:
    return short_dir / "worker-0.sock"


def test_it_answers_as_scripted_and_keeps_what_it_was_asked(
    short_dir: Path, socket_file: Path, connect: Connect
) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": LAG}) as agent:
        reply = connect(socket_file).ask("kafka_lag", topic="orders")

    assert (reply.id, reply.ok, reply.result, reply.sender) == ("7f", True, {"total": 3}, "worker-0")
    assert reply.age_seconds == 0.4
    assert [(request.rpc, request.params) for request in agent.requests] == [("kafka_lag", {"topic": "orders"})]


def test_it_stalls_until_the_event_is_set_and_serves_others_meanwhile(
    short_dir: Path, socket_file: Path, connect: Connect
) -> None:
    release = threading.Event()
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": Stalls(until=release, then=LAG)}):
        stalled, other = connect(socket_file), connect(socket_file)
        stalled.send(question("kafka_lag", "late"))
        assert other.ask("ping").ok
        stalled.socket.settimeout(0.05)
        with pytest.raises(TimeoutError):
            stalled.read()

        stalled.socket.settimeout(10)
        release.set()

        assert stalled.read().result == {"total": 3}


def test_it_breaks_a_frame_in_the_middle(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": BreaksFrame()}):
        caller = connect(socket_file)
        with pytest.raises(BrokenFrame):
            caller.ask("kafka_lag")
        assert connect(socket_file).ask("ping").ok


@pytest.mark.parametrize("step", [Vanishes(), Stalls(seconds=0.01, then=Vanishes())], ids=["at once", "later"])
def test_it_vanishes_like_a_killed_process_and_can_come_back(
    step: Step, short_dir: Path, socket_file: Path, connect: Connect
) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": step}):
        asking, other = connect(socket_file), connect(socket_file)
        assert other.ask("ping").ok
        asking.send(question("kafka_lag"))
        assert asking.is_ended()
        assert other.is_ended()
        assert socket_file.exists()
        with pytest.raises(ConnectionRefusedError):
            connect(socket_file)

        with ScriptedAgent(short_dir, "worker-0", {}):
            assert connect(socket_file).ask("ping").ok
