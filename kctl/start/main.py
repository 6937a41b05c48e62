"""`kctl start`: check, wire up, run until stopped, exit code."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from kctl.children import PRIVATE
from kctl.config.load import load
from kctl.config.sections import Config
from kctl.groups.broker_cache import BrokerCache
from kctl.http.access import access_of
from kctl.http.server import bind
from kctl.kafka.client.access import of_fleet
from kctl.logs import written_behind
from kctl.master.launch import WORKER_COMMAND, names
from kctl.start.checks import await_former_workers, find_jars, make_folders, own_data_dir, own_run_dir, refusals
from kctl.start.master import Master
from kctl.start.signals import StopSignals, tune_process
from kctl.start.wiring import wired


def run(
    config: Config,
    config_path: Path,
    *,
    worker_command: Sequence[str] = WORKER_COMMAND,
    reread: Callable[[], Config] | None = None,
) -> int:
    """Runs the fleet until SIGTERM or SIGINT; returns 0 after an orderly stop, 1 if a part of the master failed, or a
    worker was given up and `workers.on_fatal` is `exit`.

    The caller sets up logging. A second signal kills what is left. SIGHUP reloads, by default from `config_path` and
    the environment. Raises StartError, ConfigError; nothing was started.
    """
    os.umask(PRIVATE)
    again = reread or (lambda: load(config_path, os.environ))
    with written_behind():
        return asyncio.run(_run(config, config_path, worker_command, again))


async def _run(config: Config, config_path: Path, worker_command: Sequence[str], reread: Callable[[], Config]) -> int:
    tune_process()
    supervised = names(config)
    for refusal in refusals(config):
        raise refusal
    with StopSignals() as signals, own_run_dir(config.fleet.run_dir):
        jars = await find_jars(config)
        broker_cache = BrokerCache.of(
            config.kafka, of_fleet(config), config.collect.timeout_seconds, config.collect.interval_seconds
        )
        try:
            await broker_cache.check()
            access = access_of(config.http, config.path.parent)
            with contextlib.closing(bind(config.http.host, config.http.port)) as http_socket:
                make_folders(config)
                with own_data_dir(config.fleet.data_dir, config.fleet.run_dir):
                    former = await await_former_workers(
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
