"""What `kctl start` checks and prepares before it starts a process."""

import asyncio
import contextlib
import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from kctl.config.sections import Config
from kctl.config.storage import dead_letters_of, table_folder, table_folders
from kctl.errors import AlreadyRunning, JarsMissing, KctlError, RunDirUnusable, StartError
from kctl.fleets import ABOUT_NAME
from kctl.groups.broker_cache import BrokerCache
from kctl.http.access import access_of
from kctl.jars.ivy import require_pyspark
from kctl.jars.java import java_command
from kctl.jars.lock import LockName, jar_paths
from kctl.kafka.client.access import of_fleet
from kctl.master.launch import names
from kctl.master.process import kill_session, remove_socket
from kctl.master.user_code import check_handler
from kctl.ownership import check_mode
from kctl.secrets import cluster_secret
from kctl_agent import paths
from kctl_agent.errors import PathError
from kctl_agent.peers import are_shown
from kctl_agent.rpc.messages import number_of

LOCK_NAME = "master.lock"
_POLL_SECONDS = 0.05

log = logging.getLogger(__name__)


@contextlib.contextmanager
def own_run_dir(run_dir: Path) -> Iterator[None]:
    """Locks `run_dir`, and creates it if needed. Removes the lock file at the end. After an error, also removes
    `run_dir` if it was new and is empty. Raises RunDirUnusable or AlreadyRunning."""
    is_new = not run_dir.exists()
    try:
        paths.prepare_run_dir(run_dir)
        lock = _lock(run_dir / LOCK_NAME, run_dir)
        (run_dir / ABOUT_NAME).unlink(missing_ok=True)  # left by a killed master, with an old pid and port
    except PathError as error:
        _remove_if_new(run_dir, is_new)
        raise RunDirUnusable(str(error)) from error
    except OSError as error:
        raise RunDirUnusable(
            f"run_dir {run_dir} cannot be written ({error.strerror}): choose another run_dir"
        ) from error
    has_failed = True
    try:
        yield
        has_failed = False
    finally:
        (run_dir / LOCK_NAME).unlink(missing_ok=True)
        os.close(lock)
        _remove_if_new(run_dir, is_new and has_failed)


@contextlib.contextmanager
def own_data_dir(data_dir: Path, run_dir: Path) -> Iterator[None]:
    """Locks `data_dir`, because two fleets with the same data_dir would clear each other's scratch folders. Raises
    RunDirUnusable. Raises AlreadyRunning if a process of another fleet still uses `data_dir`."""
    path = data_dir / "data.lock"
    former = Path(_holder(path)[1])
    try:
        lock = _lock(path, run_dir)
    except OSError as error:
        raise RunDirUnusable(f"{path} cannot be written ({error.strerror}): correct fleet.data_dir") from error
    try:
        if former != run_dir:
            _refuse_left_by(former)
        yield
        path.unlink(missing_ok=True)
    finally:
        os.close(lock)


def refusals(config: Config, timeout_seconds: float = 30.0) -> Iterator[KctlError]:
    """Runs checks that need no broker, and yields each error. `timeout_seconds` limits the import of the handler."""
    attempts: tuple[Callable[[], object], ...] = (
        _check_kernel,
        lambda: _check_socket_paths(config.fleet.run_dir, names(config)),
        lambda: cluster_secret(config),
        lambda: check_handler(config, timeout_seconds),
        lambda: of_fleet(config),
        lambda: access_of(config.http, config.path.parent),
        lambda: _check_jars(config),
        lambda: check_folders(config),
    )
    for attempt in attempts:
        try:
            attempt()
        except KctlError as error:
            yield error


async def check_brokers(config: Config) -> None:
    cache = BrokerCache.of(config.kafka, of_fleet(config), config.collect.timeout_seconds)
    try:
        await cache.check()
    finally:
        await cache.close()


def _check_kernel() -> None:
    if not are_shown():
        raise StartError(
            "the kernel does not show which user owns a TCP connection, and kctl needs that to keep other users out "
            "of its JVMs: run modprobe tcp_diag, for a container on its host"
        )


def _check_socket_paths(run_dir: Path, supervised: list[str]) -> None:
    try:
        for name in [paths.MASTER_NAME, *supervised]:
            paths.socket_path(run_dir, name)
    except PathError as error:
        raise RunDirUnusable(str(error)) from error


async def find_jars(config: Config) -> list[Path]:
    """Returns the jars to add to Spark. Raises JavaMissing, JarsMissing."""
    require_pyspark()
    await asyncio.to_thread(java_command)
    if not config.spark.jars:
        locks: list[LockName] = ["spark", "s3"] if config.storage.uri.startswith("s3://") else ["spark"]
        return [jar for lock in locks for jar in await asyncio.to_thread(jar_paths, lock)]
    _check_jars(config)
    return list(config.spark.jars)


def _check_jars(config: Config) -> None:
    missing = [str(jar) for jar in config.spark.jars if not jar.is_file()]
    if missing:
        raise JarsMissing(f"spark.jars names {', '.join(missing)}, which is missing: correct it, or leave it empty")


async def await_former_workers(
    run_dir: Path, names: list[str], timeout_seconds: float, stop: asyncio.Event
) -> dict[str, int]:
    """Waits until the processes `names` of a killed master end, and kills them after `timeout_seconds`. Returns name ->
    session id for processes that survive SIGKILL. The caller must not reuse the name of a survivor that still runs.
    Returns {} if `stop` is set. Raises AlreadyRunning if no master of this run_dir started one of the processes."""
    deadline = time.monotonic() + timeout_seconds
    survivors: dict[str, int] = {}
    for name in names:
        owner = paths.socket_owner(paths.socket_path(run_dir, name))
        if owner is None:
            continue
        if paths.is_alive(owner):
            log.info("action=wait worker=%s pid=%d: it still runs, started by an earlier master", name, owner.pid)
        while paths.is_alive(owner) and time.monotonic() < deadline:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_POLL_SECONDS):
                    await stop.wait()
                return {}
        if await _survives(run_dir, name, owner):
            survivors[name] = owner.pid
    return survivors


async def _survives(run_dir: Path, name: str, owner: paths.ProcessIdentity) -> bool:
    path = paths.socket_path(run_dir, name)
    # The session's id (the worker's pid) may be reused once the session has ended; `mark` spares a new session.
    killed, survivors = await kill_session(owner.pid, mark=str(path))
    if survivors:
        return True
    if killed:
        left = number_of(killed, "process", "processes")
        log.warning("action=killed worker=%s pid=%d: %s of an earlier master", name, owner.pid, left)
    if paths.is_alive(owner):
        raise AlreadyRunning(
            f"{name} of {run_dir} still runs as pid {owner.pid} without a master: wait until it ends, or kill it"
        )
    await asyncio.to_thread(remove_socket, path, owner.pid)
    return False


def make_folders(config: Config) -> None:
    """Creates the fleet's folders, and warns if others can access them. For a local table in a shared folder such as
    /tmp, also creates the table's folders before another user can. Raises RunDirUnusable."""
    table = table_folder(config)
    shared = (table, dead_letters_of(table)) if table is not None and _is_shared(table.parent) else ()
    for setting, folder in (*_own_folders(config), *(("storage.uri", each) for each in shared)):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunDirUnusable(f"{folder} cannot be created ({error.strerror}): correct {setting}") from error
    for folder, mode in check_folders(config).items():
        if mode & stat.S_IWGRP:
            log.warning("action=open_folder path=%s mode=%04o: its group can replace what is in it", folder, mode)
        if mode & stat.S_IRWXO:
            log.warning("action=open_folder path=%s mode=%04o: all users of this machine can read it", folder, mode)


def check_folders(config: Config) -> dict[Path, int]:
    """Returns the modes of existing folders that workers write to. Skips a shared parent folder of a table, such as
    /tmp. Raises RunDirUnusable if a folder belongs to another user, or if all users can write to it."""
    table = table_folder(config)
    shared = ("storage.uri", table.parent) if table is not None and _is_shared(table.parent) else None
    modes: dict[Path, int] = {}
    for setting, folder in (*_own_folders(config), *table_folders(config)):
        mode = _mode_of(setting, folder)
        if mode is None or (setting, folder) == shared:
            continue
        check_mode(setting, folder, mode)
        modes[folder] = mode
    return modes


def _own_folders(config: Config) -> tuple[tuple[str, Path], ...]:
    return (
        ("fleet.data_dir", config.fleet.data_dir),
        ("fleet.log_dir", config.fleet.log_dir),
        ("storage.path", config.storage.path.parent),
    )


def _mode_of(setting: str, folder: Path) -> int | None:
    try:
        for found in (folder.lstat(), folder.stat()):  # the owner of a link could change its target
            if found.st_uid not in (os.geteuid(), 0):
                raise RunDirUnusable(
                    f"{folder} belongs to uid {found.st_uid}, who could replace its content: correct {setting}"
                )
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RunDirUnusable(f"{folder} cannot be used ({error.strerror}): correct {setting}") from error
    return stat.S_IMODE(found.st_mode)


def _is_shared(folder: Path) -> bool:
    # All users may create files here, but rename or remove only their own.
    with contextlib.suppress(OSError):
        return folder.stat().st_mode & (stat.S_IWOTH | stat.S_ISVTX) == stat.S_IWOTH | stat.S_ISVTX
    return False


def _lock(path: Path, run_dir: Path) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The master before us may have removed the file between our open and our lock, which then protects nothing.
            if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()} {run_dir}\n".encode(), 0)
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            pid, other = _holder(path)
            raise AlreadyRunning(
                f"a master (pid {pid}, run_dir {other}) uses {path.parent} already: stop it with `kctl stop`, or "
                "choose another run_dir and data_dir"
            ) from None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _holder(lock: Path) -> tuple[str, str]:
    with contextlib.suppress(OSError, UnicodeError):
        pid, _, run_dir = lock.read_text().strip().partition(" ")
        return pid or "unknown", run_dir or "unknown"
    return "unknown", "unknown"


def _refuse_left_by(run_dir: Path) -> None:
    for name in paths.list_agents(run_dir) if run_dir.is_dir() else ():
        owner = paths.socket_owner(paths.socket_path(run_dir, name))
        if owner is not None and paths.is_alive(owner):
            raise AlreadyRunning(
                f"{name} of {run_dir} still runs as pid {owner.pid} and uses the same data_dir: wait until it ends, "
                "or kill it"
            )


def _remove_if_new(run_dir: Path, is_new: bool) -> None:
    if is_new:
        with contextlib.suppress(OSError):
            run_dir.rmdir()  # only if it is empty
