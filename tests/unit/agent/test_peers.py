from __future__ import annotations

import os
import socket

import pytest

from kctl_agent.peers import are_shown, is_own, owner_of_listener, owner_of_peer
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


def test_what_is_no_address_has_no_owner() -> None:
    with pytest.raises(OSError, match="illegal IP address"):
        owner_of_peer(("localhost", 1), ("127.0.0.1", 1))


def test_a_kernel_without_tcp_diag_shows_no_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    assert are_shown()
    monkeypatch.setattr(socket, "IPPROTO_TCP", 254)  # a protocol that no kernel module knows
    assert not are_shown()


@needs_root
def test_owners_are_shown_to_every_user() -> None:
    ran = run_as_nobody("print(are_shown())", imports="from kctl_agent.peers import are_shown\n")

    assert (ran.stdout, ran.stderr) == ("True\n", "")
