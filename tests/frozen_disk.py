"""A disk that can be frozen: a process that writes to it sleeps uninterruptibly and survives SIGKILL until it is
thawed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


class FrozenDisk:
    """An ext4 file system in a file, mounted at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.is_frozen = False

    def freeze(self) -> None:
        subprocess.run(["fsfreeze", "-f", self.path], check=True)
        self.is_frozen = True

    def thaw(self) -> None:
        if self.is_frozen:
            subprocess.run(["fsfreeze", "-u", self.path], check=True)
            self.is_frozen = False


@contextlib.contextmanager
def frozen_disk(folder: Path) -> Iterator[FrozenDisk]:
    """Skips the test if no file system can be mounted."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or shutil.which("fsfreeze") is None:
        pytest.skip("needs root, mkfs.ext4 and fsfreeze: a disk that hangs")
    image, path = folder / "disk.img", folder / "disk"
    path.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    mounted = subprocess.run(["mount", "-o", "loop", image, path], capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    disk = FrozenDisk(path)
    try:
        yield disk
    finally:
        disk.thaw()
        subprocess.run(["umount", "-l", path], check=True)
