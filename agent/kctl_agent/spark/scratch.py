"""Clean-up of what a killed driver has left in its scratch folder."""

from __future__ import annotations

import shutil
from pathlib import Path

_LEFT = ("query-*", "blockmgr-*", "spark-*", "artifacts-*", "liblz4-java-*")


def sweep(scratch_dir: Path) -> None:
    """Removes what a killed predecessor of this name left; having its socket proves that it is gone."""
    for pattern in _LEFT:
        for left in scratch_dir.glob(pattern):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)
