"""The agent's socket between processes: other users, killed owners, forks, and too few descriptors."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kctl_agent.rpc.server import AgentServer
from tests.caller import Caller, question
from tests.stranger import NOBODY, answer_to_nobody, needs_root

SERVE = """
import os, resource, signal, sys, warnings
from pathlib import Path
from kctl_agent.rpc.commands import COMMANDS, AgentCommand
from kctl_agent.rpc.server import AgentServer
warnings.simplefilter("ignore")  # Python 3.12 warns of every fork beside threads; that is what is tested
big = AgentCommand("big", lambda *_: {"text": "x" * 5_000_000}, "for this test")
server = AgentServer(Path(sys.argv[1]), "worker-0", COMMANDS | {"big": big})
"""
STAY = """
server.start()
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def process(short_dir: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(then: str) -> subprocess.Popen[str]:
        one = subprocess.Popen(
            [sys.executable, "-c", SERVE + then, str(short_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(one)
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
        return one

    yield start
    for one in started:
        one.kill()
        one.communicate()


@pytest.fixture
def socket_file(short_dir: Path) -> Path:
    return short_dir / "worker-0.sock"


# ---- who may call


@pytest.mark.shows("the agent's socket rejects another user with the reason")
@needs_root
def test_another_user_is_rejected_with_the_reason_and_the_owner_served(short_dir: Path, socket_file: Path) -> None:
    with AgentServer(short_dir, "worker-0") as server:
        short_dir.chmod(0o711)
        socket_file.chmod(0o666)  # by themselves, folder and file would keep the user out

        assert answer_to_nobody(socket_file, "ping") == [str(NOBODY), "not_permitted", "True"]
        assert server.faults.counts == {"a peer of another user was rejected": 1}
        with Caller(socket_file) as owner:
            assert owner.ask("ping").ok


# ---- owners that are gone


def test_a_host_that_ends_without_closing_its_agent_is_not_held_up(short_dir: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SERVE + "server.start()", str(short_dir)],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )

    assert (done.stdout, done.stderr) == ("", "")


def test_a_peer_that_leaves_kills_no_host(socket_file: Path, process: Callable[[str], subprocess.Popen[str]]) -> None:
    host = process("signal.signal(signal.SIGPIPE, signal.SIG_DFL)" + STAY)

    for _ in range(20):
        with Caller(socket_file) as caller:
            caller.send(question("big"))
            caller.socket.recv(10)
        with Caller(socket_file) as caller:
            caller.send(question("ping"))

    with Caller(socket_file) as caller:
        assert caller.ask("ping").ok
    assert host.poll() is None


# ---- forks


FORK_AND_HOLD = """
def inherited():
    kinds = ("socket:", "anon_inode:[eventpoll]", "anon_inode:[eventfd]")
    links = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            pass
    return [link for link in links if link.startswith(kinds)]

def fork():
    report_end, write_end = os.pipe()
    held, hold = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(hold)
        found = inherited()
        server.close()
        os.write(write_end, repr(found).encode())
        os.close(write_end)
        os.read(held, 1)
        os._exit(0)
    os.close(write_end); os.close(held)
    with open(report_end) as report:
        text = report.read()
    return child, hold, text

server.start()
print("ready", flush=True)
children = []
for line in sys.stdin:
    if line == "fork\\n":
        child, hold, text = fork()
        children.append((child, hold))
        print(text, flush=True)
    elif line == "close\\n":
        server.close()
        print("closed", flush=True)
for child, hold in children:
    os.close(hold)
    os.waitpid(child, 0)
"""


def answer_of(host: subprocess.Popen[str], command: str) -> str:
    assert host.stdin is not None
    assert host.stdout is not None
    host.stdin.write(command + "\n")
    host.stdin.flush()
    return host.stdout.readline().strip()


def test_a_forked_child_holds_no_agent(socket_file: Path, process: Callable[[str], subprocess.Popen[str]]) -> None:
    host = process(FORK_AND_HOLD)
    with Caller(socket_file) as before:
        assert before.ask("ping").ok

        assert answer_of(host, "fork") == "[]"

        assert socket_file.exists(), "the child's close() has removed its parent's socket"
        assert before.ask("ping").ok
        with Caller(socket_file) as after:
            assert after.ask("ping").ok
        assert answer_of(host, "close") == "closed"
        assert before.is_ended(), "the child, which lives on, holds the connection open"
    assert not socket_file.exists()


CLOSE_SLOWLY = """
import socket, threading, time
is_closing = threading.Event()

class SlowToClose(socket.socket):
    "Closes as CPython does, in slow motion: the number is forgotten, other threads run, the kernel closes."
    def close(self):
        fd = self.detach()
        if fd >= 0:
            is_closing.set()
            time.sleep(0.2)
            os.close(fd)

import kctl_agent.rpc.server
class Connection(kctl_agent.rpc.server.AcceptedConnection):
    def __init__(self, accepted, *rest):
        super().__init__(SlowToClose(fileno=accepted.detach()), *rest)
kctl_agent.rpc.server.AcceptedConnection = Connection
"""


def test_a_fork_inherits_no_closing_socket(socket_file: Path, process: Callable[[str], subprocess.Popen[str]]) -> None:
    host = process(CLOSE_SLOWLY + FORK_AND_HOLD.replace('if line == "fork\\n"', "if is_closing.wait(60)"))
    with Caller(socket_file) as caller:
        assert caller.ask("ping").ok

    assert answer_of(host, "fork") == "[]"


# ---- a host that is short of descriptors


@pytest.mark.alone
def test_an_agent_waits_for_a_descriptor(socket_file: Path, process: Callable[[str], subprocess.Popen[str]]) -> None:
    room = 8
    host = process(
        STAY.replace(
            "print(",
            f"resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir('/proc/self/fd')) - 1 + {room},) * 2)\nprint(",
        )
    )
    served = [Caller(socket_file) for _ in range(room)]
    waiting = [Caller(socket_file) for _ in range(4)]
    try:
        assert all(caller.ask("ping").ok for caller in served)
        for caller in waiting:
            caller.send(question("ping", "late"))
        spent = sum(psutil.Process(host.pid).cpu_times()[:2])

        threading.Event().wait(0.5)
        assert sum(psutil.Process(host.pid).cpu_times()[:2]) - spent < 0.05, "the loop spins"
        assert served[0].ask("ping").ok

        for caller in served:
            caller.socket.close()
        assert [caller.read().id for caller in waiting] == ["late"] * 4
    finally:
        for caller in served + waiting:
            caller.socket.close()
