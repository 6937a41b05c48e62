"""The master's life: check, start, run until stopped, stop in order. Everything it starts it also ends.

Order at the end: workers first, while the socket still answers how that goes; then HTTP and socket; then the rest. The
first task that fails ends the master, non-zero and with its name in the log.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path

from kctl import __version__, fleets
from kctl.audit import fleet_log
from kctl.children import PRIVATE
from kctl.config import Config, Http, load
from kctl.errors import OperationRefused, RunDirUnusable
from kctl.exporter import Exposition
from kctl.http import Access, HttpServer, Source, access_of, bind, create_app
from kctl.kafka.access import of_fleet
from kctl.kafka.broker_cache import BrokerCache
from kctl.master.checks import ABOUT_NAME, await_former_workers, find_jars, make_folders, own_run_dir
from kctl.master.collector import Collector
from kctl.master.control import ControlServer
from kctl.master.events import EventFeed, operation_events
from kctl.master.launch import WORKER_COMMAND, launches, names, sinker_launches, supervision_policy
from kctl.master.members import Members
from kctl.master.notify import notify, pet_watchdog
from kctl.master.operations import Caller, Context, OperationLog, operation_types
from kctl.master.pauses import Pauses
from kctl.master.process_log import LogRotation, ProcessLog, is_own_output
from kctl.master.router import Router
from kctl.master.rpc_stats import RpcCounts, counted
from kctl.master.service import Service
from kctl.master.supervisor import Supervisor
from kctl.reduce.rows import PauseRow
from kctl.rpc.fan_out import AgentPool
from kctl.secrets import cluster_secret
from kctl_agent.errors import PathError
from kctl_agent.messages import number_of

__all__ = ["run", "tune_interpreter"]

log = logging.getLogger(__name__)

_RELOAD_SECONDS = 600.0
_ROTATE_SECONDS = 5.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def run(
    config: Config,
    config_path: Path,
    *,
    worker_command: Sequence[str] = WORKER_COMMAND,
    reread: Callable[[], Config] | None = None,
) -> int:
    """Runs the fleet until SIGTERM or SIGINT; returns 0 after an orderly stop, 1 when a part of the master failed or
    a worker was given up that must not be.

    Logging is the caller's to set up; a second signal during the stop kills what is left at once. SIGHUP requests
    `reload`, for which `reread` loads the configuration anew, by default from `config_path` and the environment.

    Raises:
        StartError: what must hold does not; nothing was started and nothing is left behind. Also ConfigError.
    """
    os.umask(PRIVATE)
    again = reread or (lambda: load(config_path, os.environ))
    return asyncio.run(_run(config, config_path, worker_command, again))


async def _run(config: Config, config_path: Path, worker_command: Sequence[str], reread: Callable[[], Config]) -> int:
    # kafka-python logs each lost connection many times over; what an operator needs of it, `broker_cache` logs once.
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    tune_interpreter()
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # it warns of each request that is none
    supervised = names(config)
    cluster_secret(config)
    with _Signals() as signals, own_run_dir(config.fleet.run_dir, supervised):
        jars = await find_jars(config)
        broker_cache = BrokerCache.of(
            config.kafka, of_fleet(config), config.collect.timeout_seconds, config.collect.interval_seconds
        )
        try:
            await broker_cache.check()
            access = access_of(config.http, config.path.parent)
            with contextlib.closing(bind(config.http.host, config.http.port)) as http_socket:
                make_folders(config)
                await await_former_workers(
                    config.fleet.run_dir, supervised, config.workers.stop_timeout_seconds, signals.stop
                )
                if signals.stop.is_set():
                    return 0
                master = _Master(config, config_path, jars, worker_command, reread, broker_cache, http_socket, access)
                return await master.run(signals)
        finally:
            await broker_cache.close()


def tune_interpreter() -> None:
    """For a loop that answers while a thread makes a snapshot of thousands of partitions."""
    # The loop must not wait 5 ms for the interpreter each time it has let go of it.
    sys.setswitchinterval(0.001)
    # Snapshots are many objects without cycles; to search them for cycles holds everything up. So rarely, and
    # never through many at once: 20 instead of 2 was 200,000 objects, 60 ms. With 100,000 instead of 10,000, what
    # callers leave behind grew by 43 MB before it was collected (test_hostile_frames_master).
    gc.set_threshold(10_000, 2, 200)


class _Signals:
    """SIGTERM and SIGINT as events: the first asks for an orderly stop, any further one for an end at once. SIGHUP too:
    a reload."""

    def __init__(self) -> None:
        self.stop = asyncio.Event()
        self.now = asyncio.Event()
        self.reload = asyncio.Event()

    def __enter__(self) -> _Signals:
        loop = asyncio.get_running_loop()
        for number in _STOP_SIGNALS:
            loop.add_signal_handler(number, self._received)
        loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        return self

    def __exit__(self, *_: object) -> None:
        for number in (*_STOP_SIGNALS, signal.SIGHUP):
            asyncio.get_running_loop().remove_signal_handler(number)

    def _received(self) -> None:
        (self.now if self.stop.is_set() else self.stop).set()


class _Master:
    """Everything that runs, wired together once; belongs to one event loop."""

    def __init__(
        self,
        config: Config,
        config_path: Path,
        jars: Sequence[Path],
        worker_command: Sequence[str],
        reread: Callable[[], Config],
        broker_cache: BrokerCache,
        http_socket: socket.socket,
        access: Access,
    ) -> None:
        self._config = config
        self._config_path = config_path
        self._pool = AgentPool()
        self._members = Members(
            config.fleet.run_dir, lambda: self._supervisor.kinds(), lambda: self._supervisor.status(), self._pool
        )
        self._supervisor = Supervisor(
            [*launches(config, jars, worker_command), *sinker_launches(config)],
            supervision_policy(config),
            self._members.ping,
            at_start=lambda name: {"paused": self._context.scopes(name)},
            paused=lambda name: tuple(PauseRow(**scope) for scope in self._context.scopes(name)),
        )
        counts, feed = RpcCounts(), EventFeed()
        exposition = Exposition(lambda: self._collector.latest(), has_alias=config.http.lag_alias)
        self._collector = Collector(
            config,
            self._members,
            broker_cache,
            self._supervisor,
            feed,
            counts.stats,
            exposition.prepare,
            lambda: dict(self._operations.counts),
            lambda: dict(self._http.refusals),
        )
        service = Service(
            self._members, broker_cache, self._supervisor.status, lambda: self._source.reasons_not_ready()
        )
        answer = counted(service.answer, counts, lambda reply: reply.get("complete", True))
        pauses = Pauses(config.fleet.data_dir / "pauses.json")
        self._context = Context(
            config,
            self._supervisor,
            self._members,
            pauses,
            jars,
            worker_command,
            reread,
            self._use_http,
            self._collector.partitions,
        )
        self._operations = OperationLog(operation_types(self._context), fleet_log(config))
        self._operations.listeners.append(lambda operation: feed.publish(operation_events(operation)))
        self._control = ControlServer(Router(answer, self._operations).answer)
        self._source = Source(
            latest=self._collector.latest,
            render_metrics=exposition.render,
            ready_metrics=exposition.ready,
            sparkline=self._collector.sparkline,
            feed=feed,
            ask=counted(service.ask, counts, lambda reduced: reduced.complete),
            operations=self._operations,
            max_age_seconds=max(10.0, 3 * config.collect.interval_seconds + config.collect.timeout_seconds),
        )
        self._http = HttpServer(create_app(self._source, access), http_socket, access)

    def _use_http(self, http: Http) -> list[str]:
        return self._http.use(access_of(http, self._config.path.parent))

    async def run(self, signals: _Signals) -> int:
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self._pool.close)
            stack.push_async_callback(self._control.close)
            try:
                await self._control.start(self._config.fleet.run_dir)
                stack.enter_context(self._announced())
            except (PathError, OSError) as error:
                raise RunDirUnusable(str(error)) from error
            tasks = [
                _task(self._supervisor.run(), "supervisor"),
                _task(self._collector.run(), "collector"),
                _task(self._http.serve(), "http"),
                _task(pet_watchdog(), "watchdog"),
                _task(self._reload(signals.reload), "reload"),
                _task(self._rotate_logs(), "logs"),
            ]
            stack.push_async_callback(_end, tasks)
            fleet = self._config.fleet
            counts = (self._config.workers.count, self._config.sinkers.count)
            log.info("action=running fleet=%s workers=%d sinkers=%d http=%s", fleet.name, *counts, self._http.url)
            status = f"{number_of(counts[0], 'worker')}, {number_of(counts[1], 'sinker')}, {self._http.url}"
            notify("READY=1", f"STATUS={status}")
            failed = await self._until_stopped(tasks, signals.stop)
            notify("STOPPING=1")
            await self._operations.close()
            is_orderly = await self._stop_workers(tasks[0], signals.now)
            self._http.stop()
            await asyncio.wait([tasks[2]], timeout=2)
        log.info("action=ended fleet=%s", fleet.name)
        return 1 if failed or not is_orderly else 0

    async def _rotate_logs(self) -> None:
        """Those of the processes, and the master's own where it is a file that we append to (`kctl start --daemon`)."""
        path = self._config.fleet.log_dir / "master.log"
        own = [ProcessLog(path)] if is_own_output(path) else []
        rotation = LogRotation()
        while True:
            await asyncio.to_thread(rotation, [*own, *self._supervisor.logs()])
            await asyncio.sleep(_ROTATE_SECONDS)

    async def _until_stopped(self, tasks: list[asyncio.Task[None]], stop: asyncio.Event) -> bool:
        """Whether a task ended before a stop was asked for, which it never should."""
        asked, given_up = _task(_set(stop), "signal"), _task(self._until_given_up(), "given up")
        done, _ = await asyncio.wait([*tasks, asked, given_up], return_when=asyncio.FIRST_COMPLETED)
        failed = [task for task in tasks if task in done]
        await _end([asked, given_up])
        for task in failed:
            log.critical("action=failed task=%s: the master stops", task.get_name(), exc_info=task.exception())
        if not failed:
            log.info("action=stopping fleet=%s", self._config.fleet.name)
        return bool(failed) or given_up in done

    async def _until_given_up(self) -> None:
        """Until a worker is fatal, where `workers.on_fatal` is to end the fleet then."""
        while True:
            name = await self._supervisor.until_fatal()
            if self._context.config.workers.on_fatal == "exit":
                log.critical("action=exit worker=%s: it is fatal, and workers.on_fatal is exit", name)
                return

    async def _reload(self, asked: asyncio.Event) -> None:
        """SIGHUP is an operation like any other, by whoever this process belongs to."""
        while True:
            await asked.wait()
            asked.clear()
            with contextlib.suppress(OperationRefused):  # logged: another one is under way
                notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
                await self._operations.submit("reload", {}, Caller(os.getuid(), os.getpid(), "signal"), _RELOAD_SECONDS)
            notify("READY=1")

    async def _stop_workers(self, supervising: asyncio.Task[None], now: asyncio.Event) -> bool:
        """Orderly, or at once when a second signal comes; cancelling the supervisor kills what is left. Whether it was
        orderly."""
        if supervising.done():
            return True
        stopping = _task(self._supervisor.stop(), "stop")
        second_signal = _task(_set(now), "second signal")
        await asyncio.wait([stopping, second_signal, supervising], return_when=asyncio.FIRST_COMPLETED)
        is_orderly = stopping.done()
        if not is_orderly:
            log.warning("action=killing fleet=%s", self._config.fleet.name)
        await _end([second_signal, supervising, stopping])
        return is_orderly

    @contextlib.contextmanager
    def _announced(self) -> Iterator[None]:
        """master.json and the entry in the list of fleets, for as long as the master runs."""
        path = self._config.fleet.run_dir / ABOUT_NAME
        about = {
            "pid": os.getpid(),
            "start_time": time.time(),
            "version": __version__,
            "http_url": self._http.url,
            "config": str(self._config_path.absolute()),
            "fleet": self._config.fleet.name,
        }
        beside = path.with_suffix(".new")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(about, file)
        beside.replace(path)
        entry = self._listed()
        try:
            yield
        finally:
            if entry is not None:
                fleets.unregister(entry)
            path.unlink(missing_ok=True)

    def _listed(self) -> Path | None:
        """The entry in the list of fleets; None where it cannot be made. The list is a convenience: with -c the fleet
        is found without it, and a folder that cannot be written is no reason not to run (gunicorn #3551)."""
        try:
            return fleets.register(self._config.fleet.name, self._config.fleet.run_dir, self._config_path)
        except (PathError, OSError) as error:
            log.warning("action=not_listed: %s; name this fleet with -c", error)
            return None


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _task(work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
    return asyncio.create_task(work, name=name)


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
