"""`python stepping_worker.py STEP`: a real worker that freezes itself, its JVM and its executors (SIGSTOP) when it
first reaches this step.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

import psutil

from kctl_agent.storage.file import FileStorage
from kctl_agent.worker.consumer_group.membership import Membership
from kctl_agent.worker.main import main
from kctl_agent.worker.offsets.brokers import Brokers
from kctl_agent.worker.offsets.start_offsets import StartOffsets
from kctl_agent.worker.query.pipeline import Pipeline
from kctl_agent.worker.query.run import Run

STEPS: dict[str, tuple[Any, str, str]] = {
    "the stored offsets are read": (FileStorage, "stored_offsets", "after"),
    "the committed offsets are read": (Brokers, "found", "after"),
    "it is decided": (StartOffsets, "decide", "after"),
    "the stored offsets are set": (StartOffsets, "place", "after"),
    "the query begins": (Pipeline, "start", "before"),
    "the query has begun": (Pipeline, "start", "after"),
    "a batch is put": (Run, "_put", "before"),
    "a batch is being put": (Run, "_put", "during"),
    "a batch was put": (Run, "_put", "after"),
    "a batch is committed": (Membership, "commit", "before"),
    "a batch was committed": (Membership, "commit", "after"),
}
"""By step: the method's owner, its name, and when to freeze."""
INTO_A_PUT_SECONDS = 0.15


def freeze() -> None:
    """Stops the whole session, this process last; SIGCONT has to reach all of it."""
    own = os.getpid()
    for process in psutil.process_iter():
        try:
            if process.pid != own and os.getsid(process.pid) == own:
                process.suspend()
        except (psutil.Error, ProcessLookupError):
            continue
    os.kill(own, signal.SIGSTOP)


def freezing(real: Callable[..., Any], when: str) -> Callable[..., Any]:
    is_over = False

    def step(*args: Any, **kwargs: Any) -> Any:
        nonlocal is_over
        is_first, is_over = not is_over, True
        if is_first and when == "before":
            freeze()
        if is_first and when == "during":
            threading.Timer(INTO_A_PUT_SECONDS, freeze).start()
        result = real(*args, **kwargs)
        if is_first and when == "after":
            freeze()
        return result

    return step


if __name__ == "__main__":
    owner, name, when = STEPS[sys.argv[1]]
    setattr(owner, name, freezing(getattr(owner, name), when))
    os._exit(main())
