"""A file storage for tests that do not care where messages lie."""

import os
import shutil
import tempfile
import weakref
from pathlib import Path
from typing import Any

from kctl_agent.storage.file import FileStorage

IN_MEMORY = "/dev/shm"  # syncs are free here


class ScratchStorage(FileStorage):
    """Owns its folder. A pickled copy uses the same file."""

    def __init__(self, **settings: Any) -> None:
        folder = tempfile.mkdtemp(prefix="k", dir=IN_MEMORY if os.access(IN_MEMORY, os.W_OK) else None)
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        super().__init__(Path(folder) / "storage.sqlite", **settings)
        self.prepare()
