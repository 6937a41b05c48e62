"""The log of a kctl process: one line per event on stderr, `action=… key=value`, times in UTC."""

from __future__ import annotations

import logging
import sys
import time


def configure(level: str) -> None:
    """`level`: DEBUG, INFO, WARNING or ERROR (`log.level`)."""
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
