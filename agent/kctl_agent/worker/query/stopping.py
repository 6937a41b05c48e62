"""Stops queries within a time, even if they hang."""

from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kctl_agent.rpc.messages import number_of
from kctl_agent.worker.query.batch_failure import failure

log = logging.getLogger(__name__)


def stop_queries(queries: Mapping[Path, Any], seconds: float) -> None:
    """Stops each query in its own thread. The worker does not wait for one that takes longer, or hangs with its JVM."""
    threads = [threading.Thread(target=_stop, args=each, name="kctl-stop", daemon=True) for each in queries.items()]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(until - time.monotonic(), 0.0))
    if late := sum(thread.is_alive() for thread in threads):
        log.warning("%s not ended within %.0f s", number_of(late, "query has", "queries have"), seconds)


def _stop(checkpoint: Path, query: Any) -> None:
    try:
        query.stop()
    except Exception as error:  # a stream thread that does not end in time, or a dead JVM
        log.warning("stopping the query: %s", failure(error, "-"))
    shutil.rmtree(checkpoint, ignore_errors=True)
