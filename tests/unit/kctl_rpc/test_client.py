from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from kctl.errors import NoSocketFile
from kctl.rpc.client import call
from kctl_agent.errors import AgentTimeout
from kctl_agent.rpc.messages import Request, Role

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
