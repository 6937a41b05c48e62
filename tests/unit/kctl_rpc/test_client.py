from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kctl.errors import NobodyListening, NoSocketFile
from kctl.rpc.client import call
from kctl_agent.errors import AgentTimeout
from kctl_agent.rpc.messages import Request, Role
from tests.servers.scripted_agent import Answers, ScriptedAgent

QUESTION = Request(id="1", role=Role.EXTERNAL, rpc="kafka_lag", method="onKafkaLag", params={"worker": "worker-0"})


def test_a_reply_of_megabytes_is_put_together(short_dir: Path) -> None:
    large = {"text": "x" * 5_000_000}

    with ScriptedAgent(short_dir, "master", {"kafka_lag": Answers(large)}):
        assert call(short_dir / "master.sock", QUESTION, 10.0).result == large


def test_no_file_and_no_listener_are_distinguished(short_dir: Path) -> None:
    master = short_dir / "master.sock"
    with pytest.raises(NoSocketFile, match="does not exist; run `kctl start`"):
        call(master, QUESTION, 1.0)
    with pytest.raises(NoSocketFile):
        call(master / "below-no-folder", QUESTION, 1.0)

    with ScriptedAgent(short_dir, "master", {}) as agent:
        agent.vanish()
        with pytest.raises(NobodyListening, match="no process listens"):
            call(master, QUESTION, 1.0)


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
