import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kctl_agent.errors import PathError
from kctl_agent.paths import (
    MAX_SOCKET_PATH_BYTES,
    BoundSocket,
    ProcessIdentity,
    bind_socket,
    is_alive,
    list_agents,
    prepare_run_dir,
    process_identity,
    socket_owner,
    socket_path,
)
from kctl_agent.peers import are_shown, is_own, owner_of_listener, owner_of_peer
from kctl_agent.secrecy import check_private, read_private
from tests.conftest import eventually
from tests.stranger import needs_root, run_as_nobody

BACKLOG = 8


@pytest.fixture
def bind(short_dir: Path) -> Iterator[Callable[..., BoundSocket]]:
    bound: list[BoundSocket] = []

    def make(name: str = "worker-0", run_dir: Path = short_dir) -> BoundSocket:
        bound.append(bind_socket(run_dir, name, BACKLOG))
        return bound[-1]

    yield make
    for each in bound:
        each.close()


@pytest.fixture
def ended_process() -> ProcessIdentity:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        return process_identity(process.pid)


def leave_behind(run_dir: Path, owner: str | None, name: str = "worker-0") -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(run_dir / f"{name}.sock"))
        listener.listen()
    if owner is not None:
        for suffix, number in zip((".pid", ".start"), owner.split(" "), strict=False):
            (run_dir / name).with_suffix(suffix).write_text(number)


def test_a_missing_run_dir_is_made_for_its_owner_only(short_dir: Path) -> None:
    run_dir = short_dir / "a" / "run"

    prepare_run_dir(run_dir)
    prepare_run_dir(run_dir)

    assert stat.S_IMODE(run_dir.lstat().st_mode) == 0o700
    (short_dir / "link").symlink_to("a/run")
    with pytest.raises(PathError, match="symbolic link"):
        prepare_run_dir(short_dir / "link")


@pytest.mark.parametrize("mode", [0o755, 0o710, 0o701, 0o770, 0o777, 0o500])
def test_a_run_dir_of_another_mode_is_rejected_with_it(short_dir: Path, mode: int) -> None:
    short_dir.chmod(mode)

    with pytest.raises(PathError, match=f"mode {mode:04o}.*chmod 700"):
        prepare_run_dir(short_dir)


def test_a_path_of_107_bytes_is_bound_but_not_one_of_108(short_dir: Path, bind: Callable[..., BoundSocket]) -> None:
    name = "n" * (MAX_SOCKET_PATH_BYTES - len(str(short_dir)) - len("/.sock"))
    bound = bind(name)

    assert len(os.fsencode(bound.path)) == 107
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(bound.path))

    with pytest.raises(PathError, match="has 108 bytes, the limit is 107"):
        bind(name + "n")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", ".hidden", "a b", "a\n", "è", "-x"])
def test_a_name_that_is_not_a_plain_file_name_is_rejected(name: str) -> None:
    with pytest.raises(PathError, match="cannot name an agent"):
        socket_path(Path("/run"), name)


def test_agents_are_listed_by_their_sockets_without_the_master(short_dir: Path) -> None:
    for name in ("worker-1.sock", "worker-0.sock", "master.sock", "worker-0.pid", ".worker-2", ".x.sock", "notes"):
        (short_dir / name).write_text("")

    assert list_agents(short_dir) == ["worker-0", "worker-1"]
    with pytest.raises(PathError, match="cannot be read"):
        list_agents(short_dir / "nowhere")


@pytest.mark.shows("only its owner can open a socket, from the start; a dead owner's socket is replaced")
def test_a_bound_socket_is_for_its_owner_only(short_dir: Path, bind: Callable[..., BoundSocket]) -> None:
    bound = bind()

    assert stat.S_IMODE(bound.path.lstat().st_mode) == 0o600
    assert sorted(os.listdir(short_dir)) == ["worker-0.pid", "worker-0.sock", "worker-0.start"]
    assert (short_dir / "worker-0.pid").read_text() == f"{os.getpid()}\n", "one number, for `kill $(cat worker-0.pid)`"
    assert socket_owner(bound.path) == process_identity()


def test_closing_leaves_a_socket_of_others_alone(short_dir: Path, bind: Callable[..., BoundSocket]) -> None:
    first = bind()
    for suffix in ("sock", "pid", "start"):
        first.path.with_suffix(f".{suffix}").unlink()
    second = bind()

    first.close()

    assert second.path.exists()
    assert (short_dir / "worker-0.pid").exists()


def test_a_living_owner_is_respected_without_listening(short_dir: Path, bind: Callable[..., BoundSocket]) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as owner:
        identity = process_identity(owner.pid)
        leave_behind(short_dir, f"{identity.pid} {identity.start_ticks}")

        with pytest.raises(PathError, match=f"already served by pid {owner.pid}"):
            bind()


def test_dead_owners_yield(short_dir: Path, bind: Callable[..., BoundSocket], ended_process: ProcessIdentity) -> None:
    ours = process_identity()
    of_an_ended_one, of_a_pid_given_to_another = (
        f"{owner.pid} {ticks}"
        for owner, ticks in ((ended_process, ended_process.start_ticks), (ours, ours.start_ticks - 1))
    )
    for number, record in enumerate((of_an_ended_one, of_a_pid_given_to_another, None, "", "12", "a b", "\x00\xff")):
        leave_behind(short_dir, record, f"worker-{number}")
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(str(bind(f"worker-{number}").path))


def test_without_a_record_a_served_socket_is_left_alone(short_dir: Path, bind: Callable[..., BoundSocket]) -> None:
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.bind(str(short_dir / "worker-0.sock"))
        stranger.listen(0)

        for _ in range(3):  # and also when its backlog is full
            with pytest.raises(PathError, match="left no record"):
                bind()
        assert (short_dir / "worker-0.sock").exists()


def test_what_is_no_socket_stays_and_no_link_is_followed(short_dir: Path, bind: Callable[..., BoundSocket]) -> None:
    (short_dir / "worker-0.sock").write_text("precious")
    (short_dir / "precious").write_text("precious")
    (short_dir / "worker-1.pid").symlink_to("precious")

    with pytest.raises(PathError, match="is not a socket"):
        bind()
    with pytest.raises(PathError):
        bind("worker-1")

    assert (short_dir / "worker-0.sock").read_text() == (short_dir / "precious").read_text() == "precious"
    assert not (short_dir / "worker-1.sock").exists()


def test_of_many_starters_of_one_name_exactly_one_wins(short_dir: Path, ended_process: ProcessIdentity) -> None:
    leave_behind(short_dir, f"{ended_process.pid} {ended_process.start_ticks}")
    start = threading.Barrier(8)

    def try_it(_: int) -> BoundSocket | PathError:
        start.wait()
        try:
            return bind_socket(short_dir, "worker-0", BACKLOG)
        except PathError as error:
            return error

    with ThreadPoolExecutor(8) as starters:
        outcomes = list(starters.map(try_it, range(8)))

    [won] = [each for each in outcomes if isinstance(each, BoundSocket)]
    assert sum("already served" in str(each) for each in outcomes) == 7
    won.close()


def test_a_process_that_has_ended_is_not_alive_even_before_its_parent_has_noticed() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = process_identity(process.pid)
    assert process.stdin is not None

    process.stdin.close()

    eventually(lambda: not is_alive(identity), what="a zombie counts as alive")
    process.wait()
    with pytest.raises(ProcessLookupError):
        process_identity(identity.pid)


def test_a_process_name_with_brackets_and_spaces_does_not_confuse_the_start_time(short_dir: Path) -> None:
    odd = short_dir / "a) R 1 (b"
    odd.symlink_to("/bin/sleep")
    process = subprocess.Popen([odd, "60"])
    try:
        assert process_identity(process.pid).start_ticks >= process_identity().start_ticks
    finally:
        process.kill()
        process.wait()


LISTENING = [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "::1"), ("::", "::1"), ("::", "127.0.0.1")]


@pytest.mark.parametrize(("address", "reached_at"), LISTENING)
def test_the_owner_of_each_end_is_found_over_ipv4_and_ipv6(address: str, reached_at: str) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.create_server((address, 0), family=family, dualstack_ipv6=address == "::") as server:
        port = server.getsockname()[1]
        assert owner_of_listener(reached_at, port) == os.geteuid()
        peer = socket.create_connection((reached_at, port))
        accepted, theirs = server.accept()
        with accepted:
            assert owner_of_peer(theirs[:2], accepted.getsockname()[:2]) == os.geteuid()

            peer.close()

            assert not is_own(accepted), "who has left is nobody"
        assert owner_of_peer((reached_at, port), (reached_at, 1)) is None, "a listener is no peer"
    assert owner_of_listener(reached_at, port) is None


def test_what_is_no_address_and_a_kernel_without_tcp_diag_have_no_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OSError, match="illegal IP address"):
        owner_of_peer(("localhost", 1), ("127.0.0.1", 1))
    assert are_shown()
    monkeypatch.setattr(socket, "IPPROTO_TCP", 254)  # a protocol that no kernel module knows
    assert not are_shown()


@needs_root
def test_owners_are_shown_to_every_user() -> None:
    ran = run_as_nobody("print(are_shown())", imports="from kctl_agent.peers import are_shown\n")

    assert (ran.stdout, ran.stderr) == ("True\n", "")


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o640, 0o440])
def test_a_file_of_the_user_or_of_a_group_is_read(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    file.chmod(mode)
    link = tmp_path / "link"
    link.symlink_to("password")

    for each in (file, link):
        assert read_private(each) == "hunter2\n"
        check_private(each)


@pytest.mark.shows("files with secrets that every user can open are rejected")
@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_a_file_that_every_user_can_open_is_rejected_with_what_to_do(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    file.chmod(mode)

    for opened in (read_private, check_private):
        with pytest.raises(OSError, match=f"mode {mode:04o}.*chmod o= {file}") as refused:
            opened(file)
        assert "hunter2" not in str(refused.value)
