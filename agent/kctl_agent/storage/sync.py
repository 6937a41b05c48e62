"""Syncs files and folders to the disk, so that they survive a power cut."""

import os
from pathlib import Path


def sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
