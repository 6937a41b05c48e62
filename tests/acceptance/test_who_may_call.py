"""Who may call: a real second uid against a running master and its agents, over the real command line and raw sockets.

That run_dir is refused with a wrong owner or mode is in test_bad_input.py; the rules one by one are in
tests/unit/agent/test_paths.py.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kctl_agent.server import AgentServer
from tests.acceptance.fleets import START_SECONDS, Eventually, Fleet
from tests.acceptance.stranger import NOBODY, needs_root, run_as_nobody

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

_ASK = """
from kctl_agent.messages import Request, Role
from kctl_agent.wire import MAX_REPLY_BYTES, Decoder, encode
with socket.socket(socket.AF_UNIX) as peer:
    peer.settimeout(10)
    peer.connect(sys.argv[1])
    try:
        peer.sendall(encode(Request(Role(int(sys.argv[2])), sys.argv[3], sys.argv[4]).to_json()))
    except BrokenPipeError:
        pass
    decoder, replies = Decoder(MAX_REPLY_BYTES), []
    while not replies:
        replies = decoder.feed(peer.recv(65536))
    [reply] = replies
    print(os.getuid(), reply["ok"], reply["error"]["code"], "result" in reply)
"""
"""Ask once and tell what came. (A peer that is refused may find the socket closed before it has sent.)"""


@pytest.fixture
def fleet(make_fleet: Callable[..., Fleet], eventually: Eventually) -> Fleet:
    """A master that runs; its worker cannot start, so that no Spark is needed. `guest` is an attached agent."""
    fleet = make_fleet(partitions=1, workers_more='transform = "no_such_module:clean"')
    fleet.start()
    eventually(lambda: "action=fatal" in fleet.log.read_text(), START_SECONDS, "the worker has been given up")
    return fleet


def sockets(fleet: Fleet) -> dict[str, Path]:
    return {path.stem: path for path in (fleet.directory / "run").glob("*.sock")}


def test_run_dir_and_everything_in_it_are_for_their_owner_alone(fleet: Fleet) -> None:
    run_dir = fleet.directory / "run"
    with AgentServer(run_dir, "guest"):
        modes = {path.name: stat.S_IMODE(path.lstat().st_mode) for path in run_dir.iterdir()}

    assert stat.S_IMODE(run_dir.lstat().st_mode) == 0o700
    assert {"master.sock", "master.json", "master.lock", "master.pid", "guest.sock"} <= modes.keys()
    assert set(modes.values()) == {0o600}


@needs_root
def test_another_user_is_told_by_the_command_line_that_the_fleet_is_not_his(fleet: Fleet) -> None:
    for folder in (fleet.directory.parent, fleet.directory):
        folder.chmod(0o755)
    code = "from kctl.cli import main; sys.exit(main())"

    done = run_as_nobody(code, "rpc", "kafka_lag", "-c", str(fleet.config))

    assert done.returncode == 5
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "not permitted" in done.stderr or "belongs to another user" in done.stderr


@needs_root
@pytest.mark.parametrize(
    ("name", "role", "method"), [("master", 0, "onKafkaLag"), ("master", 0, "getStatus"), ("guest", 1, "getKafkaLag")]
)
def test_another_user_is_refused_by_the_kernels_word_even_where_every_mode_lets_him_in(
    fleet: Fleet, name: str, role: int, method: str
) -> None:
    with AgentServer(fleet.directory / "run", "guest"):
        for folder in (fleet.directory.parent, fleet.directory, fleet.directory / "run"):
            folder.chmod(0o755)
        path = sockets(fleet)[name]
        path.chmod(0o666)
        rpc = "status" if method == "getStatus" else "kafka_lag"

        done = run_as_nobody(_ASK, str(path), str(role), rpc, method)

        assert done.stderr == ""
        assert done.stdout.split() == [str(NOBODY), "False", "not_permitted", "False"]
        assert fleet.ask("kafka_lag") is not None, "its own user is served as before"
    assert f"action=refused uid={NOBODY}" in fleet.log.read_text() or name != "master"


@needs_root
def test_another_user_cannot_even_reach_a_socket_in_a_run_dir_as_it_is_made(fleet: Fleet) -> None:
    path = sockets(fleet)["master"]
    path.chmod(0o666)

    done = run_as_nobody(_ASK, str(path), "0", "kafka_lag", "onKafkaLag")

    assert done.returncode == 1
    assert "PermissionError" in done.stderr
    assert os.listdir(fleet.directory / "run")
