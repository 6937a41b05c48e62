"""The owner of a TCP socket of this machine, as the kernel has it. Linux only; standard library only.

An address or a port identifies nobody: any user may connect from loopback, and listen where somebody else has left.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TABLES: Final = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_ESTABLISHED, _LISTEN = "01", "0A"
"""States in include/net/tcp_states.h. In others the kernel shows root where the process has closed its socket."""
_TRIES: Final = 3
"""How often the tables are read: the kernel may miss a line of one that changes meanwhile."""
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"
"""Prefix of an IPv4 address in the table of IPv6."""


def owners_of(address: str, port: int) -> set[int]:
    """Returns the uids that connections to a TCP port of this address reach: as the kernel has it, who listens on the
    address itself comes before who listens on all. Raises OSError: the kernel does not show it."""
    lines = [line.split() for text in _tables() for line in text.splitlines()[1:]]
    listening = [(words[1], int(words[7])) for words in lines if words[3] == _LISTEN]
    for each in (address, "0.0.0.0", "::"):  # noqa: S104
        if owners := {uid for local, uid in listening if local in _written(each, port)}:
            return owners
    return set()


def owner_of_peer(theirs: tuple[str, int], ours: tuple[str, int]) -> int | None:
    """Returns the uid at the other end of a connection within this machine, of its two addresses; None: there is none,
    or it has left. Raises OSError: the kernel does not show it, or these are no addresses."""
    ends = [
        f" {local} {remote} {_ESTABLISHED} " for local, remote in zip(_written(*theirs), _written(*ours), strict=True)
    ]
    for text in (text for _ in range(_TRIES) for text in _tables()):
        for each in ends:
            _, is_there, rest = text.partition(each)
            if is_there:
                return int(rest.split(maxsplit=4)[3])
    return None


def is_own(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    try:
        return owner_of_peer(connection.getpeername()[:2], connection.getsockname()[:2]) == os.geteuid()
    except OSError:
        return False


def _tables() -> Iterator[str]:
    """Lines of proc_pid_net(5), after one of titles: `sl local_address rem_address st tx:rx tr:when retrnsmt uid …`."""
    return (table.read_text("ascii") for table in _TABLES if table.exists())


def _written(address: str, port: int) -> tuple[str, ...]:
    """Formats an address as the tables have it, an IPv4 address as that of IPv6 too."""
    if ":" in address:
        return (f"{_words(socket.inet_pton(socket.AF_INET6, address))}:{port:04X}",)
    packed = socket.inet_pton(socket.AF_INET, address)
    return tuple(f"{_words(each)}:{port:04X}" for each in (packed, _MAPPED + packed))


def _words(packed: bytes) -> str:
    """Formats numbers of four bytes, in the order of this machine."""
    return "".join(f"{int.from_bytes(packed[at : at + 4], sys.byteorder):08X}" for at in range(0, len(packed), 4))


LOOPBACK: Final = _words(socket.inet_aton("127.0.0.1"))
"""Loopback as the table of IPv4 has it."""
