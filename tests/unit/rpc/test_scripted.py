"""The scripted agent follows its script, so that what is tested with it is the other side."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from kctl_agent.errors import BrokenFrame, NotReady, PathError, WireError
from tests.caller import Caller, question
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

Connect = Callable[[Path], Caller]

LAG = Answers({"total": 3}, age_seconds=0.4)


@pytest.fixture
def socket_file(short_dir: Path) -> Path:
    return short_dir / "worker-0.sock"


@pytest.mark.shows("`ScriptedAgent` answers, stalls, breaks a frame, vanishes")
def test_it_answers_as_scripted_and_keeps_what_it_was_asked(
    short_dir: Path, socket_file: Path, connect: Connect
) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": LAG}) as agent:
        reply = connect(socket_file).ask("kafka_lag", topic="orders")

    assert (reply.id, reply.ok, reply.result, reply.sender) == ("7f", True, {"total": 3}, "worker-0")
    assert reply.age_seconds == 0.4
    assert [(request.rpc, request.params) for request in agent.requests] == [("kafka_lag", {"topic": "orders"})]


def test_it_answers_ping_without_a_script(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {}):
        assert connect(socket_file).ask("ping").result["pid"] == os.getpid()


def test_what_is_not_in_the_script_is_unknown(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {}):
        reply = connect(socket_file).ask("kafka_lag")

    assert reply.error is not None
    assert reply.error.code == "unknown_method"


def test_steps_are_taken_one_call_after_the_other_and_the_last_one_stays(
    short_dir: Path, socket_file: Path, connect: Connect
) -> None:
    steps: list[Step] = [Answers({"total": 1}), Refuses(NotReady("not yet")), Answers({"total": 2})]
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": steps}):
        caller = connect(socket_file)
        replies = [caller.ask("kafka_lag") for _ in range(4)]

    assert [reply.result.get("total") for reply in replies] == [1, None, 2, 2]
    assert replies[1].error is not None
    assert replies[1].error.retriable


def test_an_answer_can_be_made_from_the_request(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"echo": Answers(lambda request: dict(request.params))}):
        assert connect(socket_file).ask("echo", a=1).result == {"a": 1}


def test_pipelined_requests_are_answered_in_order(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"a": Stalls(seconds=0.02), "b": Answers()}):
        caller = connect(socket_file)
        caller.send(question("a", "1") + question("b", "2") + question("a", "3"))

        assert [caller.read().id for _ in range(3)] == ["1", "2", "3"]


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


def test_it_stalls_for_the_scripted_seconds(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": Stalls(seconds=0.1, then=Refuses())}):
        began = monotonic()
        reply = connect(socket_file).ask("kafka_lag")

    assert not reply.ok
    assert monotonic() - began >= 0.1


def test_one_that_stalls_for_ever_can_be_closed_at_once(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    agent = ScriptedAgent(short_dir, "worker-0", {"kafka_lag": Stalls()})
    agent.start()
    caller = connect(socket_file)
    caller.send(question("kafka_lag"))

    agent.close()
    agent.close()

    assert caller.is_ended()
    assert os.listdir(short_dir) == []


def test_it_breaks_a_frame_in_the_middle(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": BreaksFrame()}):
        caller = connect(socket_file)
        with pytest.raises(BrokenFrame):
            caller.ask("kafka_lag")
        assert connect(socket_file).ask("ping").ok


def test_it_sends_bytes_that_are_no_frame(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {"kafka_lag": SendsBytes()}), pytest.raises(WireError):
        connect(socket_file).ask("kafka_lag")


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


def test_a_test_can_make_it_vanish(short_dir: Path, socket_file: Path, connect: Connect) -> None:
    with ScriptedAgent(short_dir, "worker-0", {}) as agent:
        caller = connect(socket_file)
        assert caller.ask("ping").ok

        agent.vanish()

        assert caller.is_ended()
        with pytest.raises(ConnectionRefusedError):
            connect(socket_file)


def test_a_peer_that_talks_nonsense_is_dropped_and_the_others_are_served(
    short_dir: Path, socket_file: Path, connect: Connect
) -> None:
    with ScriptedAgent(short_dir, "worker-0", {}):
        for nonsense in (b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{}"):
            bad = connect(socket_file)
            bad.send(nonsense)
            assert bad.is_ended()
        assert connect(socket_file).ask("ping").ok


def test_a_name_that_is_served_is_refused(short_dir: Path) -> None:
    with ScriptedAgent(short_dir, "worker-0", {}), pytest.raises(PathError, match="already served"):
        ScriptedAgent(short_dir, "worker-0", {}).start()
