from __future__ import annotations

from pathlib import Path

import pytest

from kctl_agent.errors import BrokenFrame, CommandFailed, NotReady
from kctl_agent.rpc.client import ask
from tests.servers.scripted_agent import Answers, BreaksFrame, Refuses, ScriptedAgent, Stalls, Step, Vanishes


def test_it_returns_the_result(short_dir: Path) -> None:
    with ScriptedAgent(short_dir, "engine", {"gateway": Answers({"accepted": True})}) as agent:
        assert ask(short_dir / "engine.sock", "gateway", {"name": "worker-0"}, 5.0) == {"accepted": True}

    assert [(request.rpc, request.params) for request in agent.requests] == [("gateway", {"name": "worker-0"})]


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (Refuses(NotReady("not yet")), CommandFailed),
        (Stalls(), TimeoutError),
        (Vanishes(), ConnectionResetError),
        (BreaksFrame(), BrokenFrame),
    ],
)
def test_whatever_is_no_answer_is_raised(short_dir: Path, step: Step, error: type[Exception]) -> None:
    with ScriptedAgent(short_dir, "engine", {"gateway": step}), pytest.raises(error):
        ask(short_dir / "engine.sock", "gateway", {}, 0.3)


def test_a_socket_without_a_listener_is_an_os_error(short_dir: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ask(short_dir / "engine.sock", "ping", {}, 0.3)
