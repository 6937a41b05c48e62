from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from kctl_agent.peers import are_shown, is_own, owner_of_listener, owner_of_peer
from kctl_agent.secrecy import check_private, read_private
from tests.stranger import needs_root, run_as_nobody

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
