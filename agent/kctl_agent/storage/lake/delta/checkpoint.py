"""Checkpoints of a table's log. delta-rs writes each in a separate process, because a checkpoint of 100,000 files takes
hundreds of megabytes of memory."""

import ctypes
import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from kctl_agent.storage.lake.delta.log import (
    LAST_CHECKPOINT,
    LOG,
    EntryMissing,
    checkpoint_name,
    entry_name,
    log_files,
    read_again,
)
from kctl_agent.storage.lake.delta.log_state import LogState
from kctl_agent.storage.lake.folder import FOLDER, Folder, LocalFolder
from kctl_agent.storage.sync import sync_file

log = logging.getLogger(__name__)

INTERVAL = 100
"""Commits between checkpoints, as in delta-rs, unless the table has `delta.checkpointInterval`."""
DECIMAL = re.compile(r"[1-9][0-9]{0,17}")
SECONDS = 600.0
CLEAN_UP_SECONDS = 3600.0  # each clean-up lists the whole log
UNFINISHED = "checkpoint-"
PR_SET_PDEATHSIG = 1


class Checkpoints:
    """Writes checkpoints of one table. For one thread at a time."""

    def __init__(self, table: Folder) -> None:
        self._table = table
        self._running: threading.Thread | None = None
        self._clean_up_at = 0.0

    def after(self, state: LogState, version: int) -> None:
        interval = state.configuration.get("delta.checkpointInterval", "")
        if version % (int(interval) if DECIMAL.fullmatch(interval) else INTERVAL):
            return
        if self._running is None or not self._running.is_alive():
            cleans_up = time.monotonic() >= self._clean_up_at
            if cleans_up:
                self._clean_up_at = time.monotonic() + CLEAN_UP_SECONDS
            args = self._table, cleans_up
            self._running = threading.Thread(target=_run, args=args, name="kctl-checkpoint", daemon=True)
            self._running.start()

    def wait(self) -> None:
        if self._running is not None:
            self._running.join()


def _run(table: Folder, cleans_up: bool) -> None:
    command = [sys.executable, "-P", "-m", __name__]
    given = json.dumps([table.uri, table.options, cleans_up])  # not as arguments: options may hold keys
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=SECONDS, start_new_session=True
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("no checkpoint of the log of %s was written: %s", table, error)
        return
    if done.returncode:
        reason = done.stderr.strip().rpartition("\n")[2]
        if done.returncode < 0:
            reason = f"its process was killed by {signal.Signals(-done.returncode).name}"
        log.warning("no checkpoint of the log of %s was written: %s", table, reason)


def main(uri: str, options: dict[str, str] | None, cleans_up: bool = True) -> None:
    def written() -> DeltaTable:
        if options is None:
            return _written_local(LocalFolder(Path(uri)))
        table = DeltaTable(uri, storage_options=options)
        table.create_checkpoint()  # an object becomes visible as a whole
        return table

    opened = read_again(written, DeltaError, FileNotFoundError, EntryMissing)
    if cleans_up and opened.metadata().configuration.get("delta.enableExpiredLogCleanup", "").lower() != "false":
        with suppress(FileNotFoundError):  # another process removes the same entries
            DeltaTable(uri, storage_options=options).cleanup_metadata()


def _written_local(table: LocalFolder) -> DeltaTable:
    place = table.local / FOLDER
    place.mkdir(exist_ok=True)
    for left in place.glob(f"{UNFINISHED}*"):
        if left.stat().st_mtime < time.time() - SECONDS:
            shutil.rmtree(left, ignore_errors=True)
    newest = log_files(table).checkpoint_files
    log = LogState.read(table).log
    # The log gets the checkpoint only when it is on the disk.
    with TemporaryDirectory(prefix=UNFINISHED, dir=place) as made:
        Path(made, LOG).mkdir()
        for name in (*log.checkpoint_files, *map(entry_name, log.versions)):
            Path(made, name).symlink_to((table.local / name).absolute())
        opened = DeltaTable(made)
        if not log.versions:
            return opened
        opened.create_checkpoint()
        name = checkpoint_name(opened.version())
        is_new = name in newest  # there, but not linked: it is damaged
        if is_new:
            sync_file(Path(made, name))
            os.replace(Path(made, name), table.local / name)
        # A checkpoint that another process wrote first stays: readers may know its size.
        if is_new or table.create(name, Path(made, name).read_bytes()):
            sync_file(Path(made, LAST_CHECKPOINT))
            os.replace(Path(made, LAST_CHECKPOINT), table.local / LAST_CHECKPOINT)
            sync_file(table.local / LOG)
    return opened


def yield_to_others() -> None:
    """Gives this process the lowest CPU priority, one delta-rs thread, and the highest OOM score."""
    os.setpriority(os.PRIO_PROCESS, 0, 19)
    os.environ["TOKIO_WORKER_THREADS"] = "1"
    Path("/proc/self/oom_score_adj").write_text("1000")


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    yield_to_others()
    main(*json.load(sys.stdin))  # not as arguments, which every user can read: options may hold keys
