"""Ships the user's modules to executors on other machines, through Spark's own file server."""

from __future__ import annotations

import hashlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""A fixed time for each file, so that the same modules make the same archive."""


def ship_modules(context: Any, import_dir: Path) -> None:
    """Ships only modules and packages of `import_dir` that this process has imported, because the folder may contain
    secrets. Call it with a session's SparkContext before its first Python function. Raises OSError."""
    written = io.BytesIO()
    files = sorted(path.relative_to(import_dir) for path in _imported(import_dir))
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in sorted({folder for file in files for folder in file.parents if folder.name}):
            # Python finds a package without `__init__.py` by this entry.
            archive.writestr(zipfile.ZipInfo(f"{folder}/", _EPOCH), b"")
        for file in files:
            archive.writestr(zipfile.ZipInfo(str(file), _EPOCH), (import_dir / file).read_bytes())
    content = written.getvalue()
    # In the JVM's own folder, because later executors fetch it too.
    folder = Path(context._jvm.java.lang.System.getProperty("java.io.tmpdir"))  # noqa: SLF001
    path = folder / f"spark-modules-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    part = path.with_suffix(f".{os.getpid()}")  # another worker may write the same file, or be killed meanwhile
    part.write_bytes(content)
    part.replace(path)
    context.addPyFile(str(path))


def _imported(import_dir: Path) -> Iterator[Path]:
    for name, module in list(sys.modules.items()):
        path = import_dir / name
        if "." in name:
            continue
        if str(path) in getattr(module, "__path__", ()):
            yield from path.rglob("*.py")
        elif getattr(module, "__file__", None) == f"{path}.py":
            yield path.with_suffix(".py")
