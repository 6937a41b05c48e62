"""What a driver leaves in its scratch folder when it is killed."""

from __future__ import annotations

import shutil
from pathlib import Path

__all__ = ["sweep"]

_LEFT = ("query-*", "blockmgr-*", "spark-*", "artifacts-*", "liblz4-java-*")


def sweep(scratch_dir: Path) -> None:
    """Remove what a killed predecessor of this name left; having its socket proves that it is gone."""
    for pattern in _LEFT:
        for left in scratch_dir.glob(pattern):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
