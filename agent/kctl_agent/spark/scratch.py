"""Removes what a killed driver has left in its scratch folder."""

from __future__ import annotations

import shutil
from pathlib import Path

_LEFT = ("query-*", "manifest-*", "blockmgr-*", "spark-*", "artifacts-*", "liblz4-java-*")


def sweep(scratch_dir: Path) -> None:
    """Call it only as the owner of the agent's socket, whose predecessor is certainly gone."""
    for pattern in _LEFT:
        for left in scratch_dir.glob(pattern):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
