"""`kctl stop`: stops a fleet."""

import argparse
import os
import select
import signal
import sys
import time
from collections.abc import Mapping

from kctl.cli.command import CONFIG, Command, Option
from kctl.cli.fleet.operations import carry_out
from kctl.errors import NobodyListening, NoSocketFile, SocketNotPermitted, StopTimeout, UsageError
from kctl.fleets import Fleet, find, named
from kctl.master.process import session_members
from kctl_agent.errors import PathError
from kctl_agent.paths import MASTER_NAME, ProcessIdentity, check_run_dir, is_alive, recorded_identity, socket_owner

_PROGRESS_SECONDS = 5.0
_SUPERVISED = ("engine", "worker", "sinker")


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    fleet, timeout = find(options.config, env), options.timeout
    if options.name is None and named(options.config, env) is None:
        raise UsageError(f"nothing here names a fleet: to stop {fleet.name}, use `kctl stop -c {fleet.config}`")
    if options.name is not None:
        carry_out(fleet, "stop", {"name": options.name}, "table", deadline=max(timeout, 0.1))
        return
    master = fleet.master or _master_of(fleet)
    started = time.monotonic()
    gone = NobodyListening(f"no master is running there: the master of {fleet.run_dir}, pid {master.pid}, is gone")
    try:
        # A pidfd denotes this process only: its pid cannot become another's between the check and the signal.
        descriptor = os.pidfd_open(master.pid)
    except ProcessLookupError:
        raise gone from None
    try:
        if not is_alive(master):
            raise gone
        sys.stderr.write(f"stopping fleet {fleet.name} (master pid {master.pid})\n")
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        _wait(descriptor, fleet, master, started, timeout)
    except PermissionError:
        raise SocketNotPermitted(f"you are not allowed to stop pid {master.pid}: it belongs to another user") from None
    finally:
        os.close(descriptor)
    if left := _left(fleet):
        raise StopTimeout(
            f"the master of {fleet.name} has ended{left}: a process survives SIGKILL if it belongs to another user, "
            "or while it waits in the kernel for a hung disk"
        )
    sys.stderr.write(f"stopped in {time.monotonic() - started:.1f} s\n")


def _master_of(fleet: Fleet) -> ProcessIdentity:
    path = fleet.run_dir / f"{MASTER_NAME}.pid"
    try:
        check_run_dir(fleet.run_dir)  # another user's file could name any process of ours
        return recorded_identity(path)
    except (FileNotFoundError, NotADirectoryError):
        raise NoSocketFile(f"no master is running there: {path} does not exist") from None
    except PermissionError:
        raise SocketNotPermitted(f"you are not allowed to read {path}: it belongs to another user") from None
    except PathError as error:
        raise SocketNotPermitted(f"you are not allowed to stop {fleet.name}: {error}") from None
    except (OSError, ValueError):
        raise NobodyListening(f"{path} does not name the master's process") from None


def _wait(descriptor: int, fleet: Fleet, master: ProcessIdentity, started: float, timeout: float) -> None:
    while True:
        waited = time.monotonic() - started
        pause = min(_PROGRESS_SECONDS, timeout - waited)
        # A pidfd becomes readable when its process ends.
        if select.select([descriptor], [], [], max(pause, 0))[0]:
            return
        left = _left(fleet)
        if pause <= 0:
            raise StopTimeout(
                f"the master of {fleet.name} (pid {master.pid}) is still stopping after {timeout:g} s{left}"
            )
        sys.stderr.write(f"still stopping after {time.monotonic() - started:.0f} s{left}\n")


def _left(fleet: Fleet) -> str:
    records = [each for each in sorted(fleet.run_dir.glob("*.pid")) if each.stem.partition("-")[0] in _SUPERVISED]
    owners = {each.stem: socket_owner(each) for each in records}
    pids = {name: _survivor(owner) for name, owner in owners.items() if owner is not None}
    left = ", ".join(f"{name} (pid {pid})" for name, pid in pids.items() if pid is not None)
    return f"; still there: {left}" if left else ""


def _survivor(owner: ProcessIdentity) -> int | None:
    return owner.pid if is_alive(owner) else min(session_members(owner.pid), default=None)


COMMAND = Command(
    "stop",
    "Stop a fleet gracefully, or stop one of its processes.",
    (
        Option(("NAME",), "stop only this worker, sinker or `engine`"),
        CONFIG,
        Option(("--timeout",), "how long to wait", "number", "SECONDS", 60.0, least=0),
    ),
    details="To stop a fleet, name it by -c, KCTL_CONFIG or ./kctl.toml, even if it is the only one. The command sends "
    "SIGTERM to the master and waits until the master has ended. The command itself kills no process. "
    "Exit code 1: the master is still stopping after --timeout, or a process survived it, and the message names the "
    "pids; 5: there is no master. With NAME, the master stops only that process, which stays stopped until `kctl start "
    "NAME`. The master kills the process if it does not stop within `workers.stop_timeout_seconds`.",
    run=_run,
)
