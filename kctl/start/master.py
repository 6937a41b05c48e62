"""Starts a master, runs it until it is stopped, and stops its parts in order.

The master stops the workers first. HTTP and `master.sock` still answer until the workers have ended.
"""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from kctl import __version__, fleets
from kctl.children import PRIVATE
from kctl.config.load import load
from kctl.config.sections import Config
from kctl.errors import OperationRefused, RunDirUnusable
from kctl.groups.broker_cache import BrokerCache
from kctl.http.access import access_of
from kctl.http.server import bind
from kctl.kafka.client.access import of_fleet
from kctl.logs import written_behind
from kctl.master.launch import WORKER_COMMAND, names
from kctl.master.operations.base import Caller
from kctl.master.process import LogRotation, ProcessLog, is_own_output
from kctl.start import checks
from kctl.start.signals import StopSignals, end, notify, pet_watchdog, task, tune_process
from kctl.start.wiring import MasterParts, wired
from kctl_agent.errors import PathError
from kctl_agent.rpc.messages import number_of


def run(
    config: Config,
    config_path: Path,
    *,
    worker_command: Sequence[str] = WORKER_COMMAND,
    reread: Callable[[], Config] | None = None,
) -> int:
    """Runs the fleet until SIGTERM or SIGINT. Returns 0 after an orderly stop. Returns 1 if a task failed, a process
    survived SIGKILL, or a process became fatal while `workers.on_fatal` was `exit`.

    The caller sets up logging. A second signal kills the remaining processes, and the result is 1. SIGHUP reloads the
    configuration, by default from `config_path` and the environment. Raises StartError or ConfigError before anything
    starts.
    """
    os.umask(PRIVATE)
    again = reread or (lambda: load(config_path, os.environ))
    with written_behind():
        return asyncio.run(_run(config, config_path, worker_command, again))


async def _run(config: Config, config_path: Path, worker_command: Sequence[str], reread: Callable[[], Config]) -> int:
    tune_process()
    supervised = names(config)
    for refusal in checks.refusals(config):
        raise refusal
    with StopSignals() as signals, checks.own_run_dir(config.fleet.run_dir):
        jars = await checks.find_jars(config)
        broker_cache = BrokerCache.of(
            config.kafka, of_fleet(config), config.collect.timeout_seconds, config.collect.interval_seconds
        )
        try:
            await broker_cache.check()
            access = access_of(config.http, config.path.parent)
            with contextlib.closing(bind(config.http.host, config.http.port)) as http_socket:
                checks.make_folders(config)
                with checks.own_data_dir(config.fleet.data_dir, config.fleet.run_dir):
                    former = await checks.await_former_workers(
                        config.fleet.run_dir, supervised, config.workers.stop_timeout_seconds, signals.stop
                    )
                    if signals.stop.is_set():
                        return 0
                    parts = wired(config, jars, worker_command, reread, broker_cache, http_socket, access)
                    for name, session in former.items():
                        parts.supervisor.process(name).former = session
                    return await Master(config, config_path, parts).run(signals)
        finally:
            await broker_cache.close()


log = logging.getLogger(__name__)

_RELOAD_SECONDS = 600.0


class Master:
    def __init__(self, config: Config, config_path: Path, parts: MasterParts) -> None:
        self._config = config
        self._config_path = config_path
        self._parts = parts

    async def run(self, signals: StopSignals) -> int:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._parts.pool.close)
            stack.push_async_callback(self._parts.control.close)
            try:
                await self._parts.control.start(self._config.fleet.run_dir)
                stack.enter_context(announced(self._config, self._config_path, self._parts.http.url))
            except (PathError, OSError) as error:
                raise RunDirUnusable(str(error)) from error
            await self._parts.operations.report_interrupted()
            if self._parts.hosts is not None:
                stack.push_async_callback(self._parts.hosts.close)
                self._parts.hosts.start()
            stack.push_async_callback(self._parts.groups.close)
            await self._parts.groups.use(self._parts.wanted_groups)
            tasks = [
                task(self._parts.supervisor.run(), "supervisor"),
                task(self._parts.collector.run(), "collector"),
                task(self._parts.http.serve(), "http"),
                task(pet_watchdog(), "watchdog"),
                task(self._reload(signals.reload), "reload"),
                task(self._rotate_logs(), "logs"),
                task(self._parts.groups.until_failed(), "groups"),
                task(self._parts.maintenance.run(), "maintenance"),
            ]
            stack.push_async_callback(end, tasks)
            fleet = self._config.fleet
            counts = (self._config.workers.count, self._config.sinkers.count)
            log.info("action=running fleet=%s workers=%d sinkers=%d http=%s", fleet.name, *counts, self._parts.http.url)
            status = f"{number_of(counts[0], 'worker')}, {number_of(counts[1], 'sinker')}, {self._parts.http.url}"
            notify("READY=1", f"STATUS={status}")
            failed = await self._until_stopped(tasks, signals.stop)
            notify("STOPPING=1")
            await self._parts.operations.close()
            is_orderly = await self._stop_workers(tasks[0], signals.now)
            if self._parts.hosts is not None:  # inform the other hosts before this one stops answering
                await self._parts.hosts.close()
            self._parts.http.stop()
            await asyncio.wait([tasks[2]], timeout=2)
        log.info("action=ended fleet=%s", fleet.name)
        return 1 if failed or not is_orderly else 0

    async def _rotate_logs(self) -> None:
        path = self._config.fleet.log_dir / "master.log"
        own = [ProcessLog(path)] if is_own_output(path) else []
        rotation = LogRotation()
        while True:
            await asyncio.to_thread(rotation, [*own, *self._parts.supervisor.logs()])
            await asyncio.sleep(5.0)

    async def _until_stopped(self, tasks: list[asyncio.Task[object]], stop: asyncio.Event) -> bool:
        signalled, given_up = task(stop.wait(), "signal"), task(self._until_given_up(), "given up")
        done, _ = await asyncio.wait([*tasks, signalled, given_up], return_when=asyncio.FIRST_COMPLETED)
        failed = [each for each in tasks if each in done]
        await end([signalled, given_up])
        for each in failed:
            log.critical("action=failed task=%s: the master stops", each.get_name(), exc_info=each.exception())
        if not failed:
            log.info("action=stopping fleet=%s", self._config.fleet.name)
        return bool(failed) or given_up in done

    async def _until_given_up(self) -> None:
        while True:
            name = await self._parts.supervisor.until_fatal()
            if self._parts.context.config.workers.on_fatal == "exit":
                log.critical("action=exit worker=%s: it is fatal, and workers.on_fatal is exit", name)
                return

    async def _reload(self, hangup: asyncio.Event) -> None:
        while True:
            await hangup.wait()
            hangup.clear()
            with contextlib.suppress(OperationRefused):  # logged: another one is under way
                notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
                caller = Caller(os.getuid(), os.getpid(), "signal")
                await self._parts.operations.submit("reload", {}, caller, _RELOAD_SECONDS)
            notify("READY=1")

    async def _stop_workers(self, supervising: asyncio.Task[object], now: asyncio.Event) -> bool:
        if supervising.done():
            return True
        stopping = task(self._parts.supervisor.stop(), "stop")
        second_signal = task(now.wait(), "second signal")
        await asyncio.wait([stopping, second_signal, supervising], return_when=asyncio.FIRST_COMPLETED)
        is_orderly = stopping.done()
        if not is_orderly:
            log.warning("action=killing fleet=%s", self._config.fleet.name)
        await end([second_signal, supervising, stopping])
        return is_orderly and not self._parts.supervisor.has_survivors


@contextlib.contextmanager
def announced(config: Config, config_path: Path, http_url: str) -> Iterator[None]:
    """Writes master.json and adds the fleet to the user's registry. Undoes both at the end. Raises RunDirUnusable."""
    path = config.fleet.run_dir / fleets.ABOUT_NAME
    about = {
        "pid": os.getpid(),
        "start_time": time.time(),
        "version": __version__,
        "http_url": http_url,
        "config": str(config_path.absolute()),
        "fleet": config.fleet.name,
    }
    temporary = path.with_suffix(".new")
    try:
        temporary.write_text(json.dumps(about), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise RunDirUnusable(f"{path} cannot be written ({error.strerror}): correct fleet.run_dir") from error
    entry = _listed(config, config_path)
    try:
        yield
    finally:
        if entry is not None:
            fleets.unregister(entry)
        path.unlink(missing_ok=True)


def _listed(config: Config, config_path: Path) -> Path | None:
    try:
        return fleets.register(config.fleet.name, config.fleet.run_dir, config_path)
    except (PathError, OSError) as error:
        log.warning("action=not_listed path=%s: %s; name this fleet with -c", fleets.registry_dir(os.environ), error)
        return None
