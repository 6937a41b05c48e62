"""Brings to the disk what was written, so that a power cut leaves it."""

from __future__ import annotations

import os
from pathlib import Path


def sync_file(path: Path) -> None:
    """A file or a folder, to the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
