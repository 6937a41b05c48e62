"""Maintains the fleet's table (mode `lake`) once a day, and sooner if workers report many small files.

The maintenance runs in a child process of the master, because only the master knows when the group's lag is small. A
child of a worker would count towards the worker's memory limit and end with the worker.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kctl.children import child_environment, python_module
from kctl.config.sections import Config
from kctl.config.storage import storage_settings
from kctl.master.snapshot import FleetSnapshot

log = logging.getLogger(__name__)

MAINTENANCE_COMMAND = python_module("kctl_agent.table_maintenance")
CHECK_SECONDS = 15.0
LEAST_FILES = 50
"""A run is due at this many small files: the minimum of `kctl_agent.table_maintenance` per partition."""
REST_SECONDS = 600.0
REST_FACTOR = 19
"""The pause after a run, as a multiple of its duration: maintenance takes at most a twentieth of the time."""
PATIENCE_SECONDS = 3600.0  # after this time the table is compacted although the lag is constant
LONGEST_SECONDS = 86_400.0
LIMIT_SECONDS = 21_600.0
"""The longest run, because a store may accept a connection and never answer. What the run has committed stays."""


class Schedule:
    """Decides when to maintain the table. Times are seconds of a monotonic clock."""

    def __init__(self, now: float) -> None:
        self._last_at = now
        self._next_at = now
        self._small_since: float | None = None

    def is_due(self, now: float, small_files: int | None, lag: int | None, batch_records: int) -> bool:
        """Whether a run is due: a day after the last run, or earlier if `small_files` is high. An early run waits until
        the group's `lag` fits in one batch, but at most an hour. No run is due in the pause that `done` begins."""
        if now < self._next_at:
            return False
        if now - self._last_at >= LONGEST_SECONDS:
            return True
        if small_files is None or small_files < LEAST_FILES:
            self._small_since = None
            return False
        if self._small_since is None:
            self._small_since = now
        is_quiet = lag is not None and lag <= batch_records
        return is_quiet or now - self._small_since >= PATIENCE_SECONDS

    def done(self, began: float, now: float) -> None:
        self._last_at, self._small_since = now, None
        self._next_at = now + max(REST_SECONDS, REST_FACTOR * (now - began))


@dataclass(frozen=True, slots=True, eq=False)
class TableMaintenance:
    """Runs the maintenance of the table. Belongs to one event loop."""

    _config: Callable[[], Config]
    _latest: Callable[[], FleetSnapshot | None]
    _command: Sequence[str] = MAINTENANCE_COMMAND

    async def run(self) -> None:
        """Runs the maintenance when it is due. If cancelled, kills its process. Uncommitted changes have no effect."""
        clock = asyncio.get_running_loop().time
        schedule = Schedule(clock())
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            config, snapshot = self._config(), self._latest()
            if not config.storage.kind.is_table or not config.storage.maintenance or snapshot is None:
                continue
            table = snapshot.block_size.result.table
            small_files = None if table is None else table.small_files
            began = clock()
            if schedule.is_due(began, small_files, snapshot.kafka_lag.total, config.workers.max_records_per_batch):
                await self._look_after(config)
                schedule.done(began, clock())

    async def _look_after(self, config: Config) -> None:
        try:
            code, text = await self._carried_out(json.dumps(storage_settings(config) | {"group": config.kafka.group}))
        except TimeoutError:
            code, text = 1, f"it was not done after {LIMIT_SECONDS:.0f} s and was killed; its commits remain"
        except OSError as error:
            code, text = 1, f"{self._command[0]} cannot be run: {error.strerror}"
        if code:
            log.warning("action=maintenance_failed table=%s code=%d: %s", config.storage.uri, code, text)
        elif text:
            log.info("action=maintenance table=%s: %s", config.storage.uri, text)

    async def _carried_out(self, settings: str) -> tuple[int, str]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=pipe,
            stdout=pipe,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            env=child_environment(),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(settings.encode() + b"\n")
            async with asyncio.timeout(LIMIT_SECONDS):
                output = await process.stdout.read()
                code = await process.wait()
            return code, (output.decode(errors="replace").strip().splitlines() or [""])[-1]
        finally:
            process.stdin.close()
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
