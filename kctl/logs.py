"""The log of a kctl process. Each event is one line on stderr, `action=… key=value`, with a time in UTC."""

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging.handlers import QueueHandler, QueueListener
from queue import SimpleQueue

_MOST_LINES = 10_000  # at most this many lines wait for a disk; further lines are dropped


def configure(level: str) -> None:
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)


class _Queued(QueueHandler):
    def enqueue(self, record: logging.LogRecord) -> None:
        if self.queue.qsize() < _MOST_LINES:  # type: ignore[attr-defined]
            super().enqueue(record)


@contextmanager
def written_behind() -> Iterator[None]:
    """Within the `with` block, a thread writes the log, so that a hanging stderr does not block the caller. At the end,
    waits until all queued lines are written."""
    handlers, lines = logging.root.handlers[:], SimpleQueue[object]()
    listener = QueueListener(lines, *handlers)
    logging.root.handlers[:] = [_Queued(lines)]
    listener.start()
    try:
        yield
    finally:
        logging.root.handlers[:] = handlers
        listener.stop()
