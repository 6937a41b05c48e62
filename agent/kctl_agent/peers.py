"""The owner of a TCP socket of this machine, as the kernel has it. Linux only; standard library only.

An address or a port identifies nobody: any user may connect from loopback, and may listen on a port that another
process has left. The kernel looks up one socket by its addresses (sock_diag(7)), in the same time however many sockets
the machine has: `/proc/net/tcp` lists them all, and is read in 25 ms to 3 s with 18,000 of them.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import sys
from typing import Final

_SOCK_DIAG: Final = 4
"""NETLINK_SOCK_DIAG in linux/netlink.h."""
_HEADER: Final = struct.Struct("=IHHII")
"""struct nlmsghdr: length, type, flags, sequence, port."""
_BY_FAMILY, _ERROR, _REQUEST = 20, 2, 1
"""SOCK_DIAG_BY_FAMILY, NLMSG_ERROR, NLM_F_REQUEST."""
_QUESTION: Final = struct.Struct("=BBxxIHH16s16sI8s")
"""struct inet_diag_req_v2: family, protocol, states, then a socket's id: ports, addresses, interface, cookie."""
_ANSWER: Final = struct.Struct("=BBxx48x12xI")
"""struct inet_diag_msg: family, state, …, uid."""
_ANY_STATE, _ANY_COOKIE = 0xFFFFFFFF, b"\xff" * 8
_ESTABLISHED, _LISTEN = 1, 10
"""States in include/net/tcp_states.h. In others the kernel shows root where the process has closed its socket."""
_MAPPED: Final = b"\0" * 10 + b"\xff\xff"
"""Prefix of an IPv4 address that is written as one of IPv6."""


def owner_of_listener(address: str, port: int) -> int | None:
    """Returns the uid that connections to a TCP port of this address reach; None: nothing listens there. Raises
    OSError: the kernel does not show it."""
    return _owner((address, port), ("::" if ":" in address else "0.0.0.0", 0), _LISTEN)  # noqa: S104


def owner_of_peer(theirs: tuple[str, int], ours: tuple[str, int]) -> int | None:
    """Returns the uid at the other end of a connection within this machine, of its two addresses; None: there is none,
    or it has left. Raises OSError: the kernel does not show it, or these are no addresses."""
    return _owner(theirs, ours, _ESTABLISHED)


def is_own(connection: socket.socket) -> bool:
    """Whether a process of this user is at the other end."""
    try:
        return owner_of_peer(connection.getpeername()[:2], connection.getsockname()[:2]) == os.geteuid()
    except OSError:
        return False


def _owner(local: tuple[str, int], remote: tuple[str, int], state: int) -> int | None:
    """Returns the uid of the socket with these addresses. Where no connection has them, the kernel finds what listens
    on the local one: so the state has to fit."""
    (family, source), (_, destination) = _packed(local[0]), _packed(remote[0])
    ports = (socket.htons(port) for _, port in (local, remote))
    question = _QUESTION.pack(family, socket.IPPROTO_TCP, _ANY_STATE, *ports, source, destination, 0, _ANY_COOKIE)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(_HEADER.pack(_HEADER.size + len(question), _BY_FAMILY, _REQUEST, 0, 0) + question)
        answer = kernel.recv(4096)  # the kernel has answered before `send` returns
    if _HEADER.unpack_from(answer)[1] == _ERROR:
        code = -int.from_bytes(answer[_HEADER.size :][:4], sys.byteorder, signed=True)
        if code == errno.ENOENT:
            return None
        raise OSError(code, os.strerror(code))
    _, found, uid = _ANSWER.unpack_from(answer, _HEADER.size)
    return uid if found == state else None


def _packed(address: str) -> tuple[int, bytes]:
    """Returns the family and the 16 bytes of an address. The kernel finds IPv4 in sockets of IPv6 too."""
    packed = socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    packed = packed.removeprefix(_MAPPED)
    return (socket.AF_INET if len(packed) == 4 else socket.AF_INET6), packed  # struct pads it with zeros
