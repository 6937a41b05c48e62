from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kctl.errors import NobodyListening, NoMaster, NoSocketFile, SocketNotPermitted
from kctl.rpc.client import call
from kctl_agent.errors import AgentTimeout, AgentUnreachable, WireError
from kctl_agent.rpc.messages import Request, Role
from tests.servers.scripted_agent import Answers, BreaksFrame, ScriptedAgent, SendsBytes, Stalls, Step

QUESTION = Request(id="1", role=Role.EXTERNAL, rpc="kafka_lag", method="onKafkaLag", params={"worker": "worker-0"})


def socket_of(run_dir: Path) -> Path:
    return run_dir / "master.sock"


def test_a_reply_of_megabytes_is_put_together(short_dir: Path) -> None:
    large = {"text": "x" * 5_000_000}

    with ScriptedAgent(short_dir, "master", {"kafka_lag": Answers(large)}):
        assert call(socket_of(short_dir), QUESTION, 10.0).result == large


def test_no_file_no_listener_and_not_permitted_are_distinguished(short_dir: Path) -> None:
    with pytest.raises(NoSocketFile, match="does not exist; run `kctl start`"):
        call(socket_of(short_dir), QUESTION, 1.0)
    with pytest.raises(NoSocketFile):
        call(socket_of(short_dir) / "below-no-folder", QUESTION, 1.0)

    with ScriptedAgent(short_dir, "master", {}) as master:
        master.vanish()
        with pytest.raises(NobodyListening, match="no process listens"):
            call(socket_of(short_dir), QUESTION, 1.0)

    assert issubclass(SocketNotPermitted, NoMaster)


@pytest.mark.alone
def test_the_deadline_covers_connecting_sending_and_receiving_together(short_dir: Path) -> None:
    with ScriptedAgent(short_dir, "master", {"kafka_lag": Stalls()}):
        started = time.monotonic()
        with pytest.raises(AgentTimeout, match=r"within 0\.2 s"):
            call(socket_of(short_dir), QUESTION, 0.2)

    assert time.monotonic() - started < 1.0


def test_a_reply_that_trickles_does_not_extend_the_deadline(short_dir: Path) -> None:
    with trickling_server(socket_of(short_dir)), pytest.raises(AgentTimeout):
        call(socket_of(short_dir), QUESTION, 0.3)


def test_a_reply_that_breaks_off_is_unreachable_and_one_that_is_no_frame_a_wire_error(short_dir: Path) -> None:
    script: dict[str, list[Step]] = {"kafka_lag": [BreaksFrame({"total": 1}), SendsBytes(b"\xff\xff\xff\xff")]}

    with ScriptedAgent(short_dir, "master", script):
        with pytest.raises(AgentUnreachable, match="closed the connection"):
            call(socket_of(short_dir), QUESTION, 5.0)
        with pytest.raises(WireError):
            call(socket_of(short_dir), QUESTION, 5.0)


class trickling_server:  # noqa: N801 - a context manager
    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection, suppress(BrokenPipeError):  # the caller has given up
            connection.sendall(b"\x00\x00\xff\xff")
            while not self._over.wait(0.05):
                connection.send(b" ", socket.MSG_NOSIGNAL)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()
