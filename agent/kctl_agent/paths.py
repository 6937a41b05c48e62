"""The sockets of agents: location, owner, and who may connect. Linux only (/proc, SO_PEERCRED).

`run_dir` is a directory, not a symbolic link, that only this user can enter. A path has at most 107 bytes (unix(7)). A
socket's file appears only when the socket accepts connections. Other processes remove it only if its owner has ended.
"""

import errno
import fcntl
import os
import re
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from kctl_agent.errors import PathError

MAX_SOCKET_PATH_BYTES: Final = 107
MASTER_NAME: Final = "master"
ENGINE_NAME: Final = "engine"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_SUFFIX: Final = ".sock"


def prepare_run_dir(path: Path) -> None:
    """Creates or checks a directory that only this user can enter. Raises PathError."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        check_run_dir(path)
    except FileExistsError:
        raise PathError(f"run_dir {path} is not a directory: remove it or choose another run_dir") from None
    except OSError as error:
        raise PathError(f"run_dir {path} cannot be made ({error.strerror}): choose one that you may write to") from None


def check_run_dir(path: Path) -> None:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        raise PathError(f"run_dir {path} is a symbolic link: name the directory itself")
    if status.st_uid != os.geteuid():
        raise PathError(
            f"run_dir {path} belongs to uid {status.st_uid}, this process is uid {os.geteuid()}: choose one of your own"
        )
    mode = stat.S_IMODE(status.st_mode)
    if mode & 0o077:
        raise PathError(f"run_dir {path} has mode {mode:04o}, others could reach its sockets: chmod 700 {path}")
    if mode & 0o700 != 0o700:
        raise PathError(f"run_dir {path} has mode {mode:04o}, its owner cannot use it: chmod 700 {path}")


def socket_path(run_dir: Path, name: str) -> Path:
    """Returns the path where the agent `name` listens. Raises PathError if the name is invalid or the path too long."""
    if not _NAME.fullmatch(name):
        raise PathError(f"{name!r} cannot name an agent: use letters, digits, '-', '_' and '.'")
    path = run_dir / (name + _SUFFIX)
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise PathError(
            f"socket path {path} has {length} bytes, the limit is {MAX_SOCKET_PATH_BYTES}: choose a shorter run_dir"
        )
    return path


def list_agents(run_dir: Path) -> list[str]:
    """Returns the sorted names of sockets, even of ended processes, but without the master's. Raises PathError."""
    try:
        names = [entry[: -len(_SUFFIX)] for entry in os.listdir(run_dir) if entry.endswith(_SUFFIX)]
    except OSError as error:
        raise PathError(f"run_dir {run_dir} cannot be read ({error.strerror}): is it the right one?") from None
    return sorted(name for name in names if name != MASTER_NAME and _NAME.fullmatch(name))


class ProcessIdentity(NamedTuple):
    """Identifies a process even if its pid is reused. `start_ticks` counts from boot (proc(5))."""

    pid: int
    start_ticks: int


def process_identity(pid: int | None = None) -> ProcessIdentity:
    """Identifies a process, by default this one. Raises ProcessLookupError if it does not exist or is a zombie."""
    pid = os.getpid() if pid is None else pid
    try:
        line = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(f"no process {pid}") from None
    fields = line[line.rindex(b")") + 2 :].split()  # the name in brackets may contain spaces and brackets
    # A killed process is a zombie with threads while one of them is in the kernel, because of a hung disk for example.
    if fields[0] in (b"Z", b"X") and fields[17] in (b"0", b"1"):
        raise ProcessLookupError(f"process {pid} has ended")
    return ProcessIdentity(pid, int(fields[19]))


def is_alive(identity: ProcessIdentity) -> bool:
    try:
        return process_identity(identity.pid) == identity
    except ProcessLookupError:
        return False


def peer_credentials(connection: socket.socket) -> tuple[int, int, int]:
    pid, uid, gid = _UCRED.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return pid, uid, gid


_UCRED: Final = struct.Struct("iII")


def is_permitted(uid: int) -> bool:
    return uid in (0, os.geteuid())


@dataclass(slots=True)
class BoundSocket:
    socket: socket.socket
    path: Path
    owner: ProcessIdentity
    inode: tuple[int, int] = field(repr=False)

    def close(self) -> None:
        """Closes the socket, and removes its files unless this process is a forked child."""
        if self.socket.fileno() < 0:
            return
        # Remove the file first: while the socket is open, its inode number is not reused.
        if self.owner.pid == os.getpid():
            with suppress(OSError), locked(self.path.parent):
                status = self.path.lstat()
                if (status.st_dev, status.st_ino) == self.inode:
                    remove_files(self.path)
        self.socket.close()


def bind_socket(run_dir: Path, name: str, backlog: int) -> BoundSocket:
    """Listens, non-blocking, on `run_dir`/`name`.sock with mode 0600. Replaces files that an ended process left.

    `name`.pid records this process's pid, and `name`.start its start time. The socket is bound under a temporary name
    and renamed, so it accepts connections once it is visible. Raises PathError if a living process serves `name`.
    """
    path = socket_path(run_dir, name)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        with locked(run_dir):
            _remove_stale(path)
            return _bind_locked(listener, path, backlog)
    except OSError as error:
        listener.close()
        raise PathError(f"socket {path} cannot be made ({error.strerror}): check run_dir and its owner") from error
    except BaseException:
        listener.close()
        raise


def _bind_locked(listener: socket.socket, path: Path, backlog: int) -> BoundSocket:
    owner = process_identity()
    temporary = path.with_name("." + path.name[: -len(_SUFFIX)])  # never longer than the final name: 107 bytes stay 107
    temporary.unlink(missing_ok=True)
    listener.bind(os.fsencode(temporary))
    try:
        # Not by umask, which also applies to files of other threads. No peer can connect before listen().
        temporary.chmod(0o600)
        status = temporary.lstat()
        listener.listen(backlog)
        record_owner(path, owner)
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return BoundSocket(listener, path, owner, (status.st_dev, status.st_ino))


def _remove_stale(path: Path) -> None:
    owner = socket_owner(path)
    if owner is not None and is_alive(owner):
        raise PathError(f"socket {path} is already served by pid {owner.pid}: stop it or choose another name")
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise PathError(f"{path} is in the way and is not a socket: remove it")
    # Without a readable record (after a crash or a power cut), only a refused connect proves that no process listens.
    if owner is None and _accepts(path):
        raise PathError(f"socket {path} is already served by a process that left no record: stop it")
    path.unlink()


def remove_if_dead(run_dir: Path, name: str) -> bool:
    """Removes the files of an agent that has ended, and returns whether it did so. Returns False if another process has
    locked `run_dir`. Raises PathError."""
    path = socket_path(run_dir, name)
    try:
        with locked(run_dir, is_blocking=False):
            owner = socket_owner(path)
            if owner is None or is_alive(owner):
                return False
            remove_files(path)
            return True
    except OSError:
        return False


def remove_files(path: Path) -> None:
    for suffix in (_SUFFIX, ".pid", ".start"):
        path.with_suffix(suffix).unlink(missing_ok=True)


def socket_owner(path: Path) -> ProcessIdentity | None:
    try:
        return recorded_identity(path.with_suffix(".pid"))
    except (OSError, ValueError):
        return None


def recorded_identity(pid_file: Path) -> ProcessIdentity:
    return ProcessIdentity(*(int(pid_file.with_suffix(suffix).read_text("ascii")) for suffix in (".pid", ".start")))


def _accepts(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        return probe.connect_ex(os.fsencode(path)) != errno.ECONNREFUSED  # EAGAIN: a full backlog has an owner


def record_owner(path: Path, owner: ProcessIdentity) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    for suffix, number in ((".start", owner.start_ticks), (".pid", owner.pid)):
        with os.fdopen(os.open(path.with_suffix(suffix), flags, 0o600), "w") as file:
            file.write(f"{number}\n")


@contextmanager
def locked(run_dir: Path, *, is_blocking: bool = True) -> Iterator[None]:
    descriptor = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if is_blocking else fcntl.LOCK_NB))
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # explicitly: a child forked in between has the descriptor too
    finally:
        os.close(descriptor)
