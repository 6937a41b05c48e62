"""Ships the user's modules to executors on other machines, through Spark's own file server."""

from __future__ import annotations

import hashlib
import io
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The same time for each file, so that the same modules make the same archive."""


def ship_modules(context: Any, import_dir: Path) -> None:
    """Ships only modules and packages of `import_dir` that this process has imported, because the folder may contain
    secrets. Call it with a session's SparkContext before its first Python function. Raises OSError."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(_imported(import_dir)):
            archive.writestr(zipfile.ZipInfo(str(path.relative_to(import_dir)), _EPOCH), path.read_bytes())
    content = written.getvalue()
    # In the JVM's own folder, because later executors fetch it too.
    folder = Path(context._jvm.java.lang.System.getProperty("java.io.tmpdir"))  # noqa: SLF001
    path = folder / f"spark-modules-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not path.exists():
        path.write_bytes(content)
    context.addPyFile(str(path))


def _imported(import_dir: Path) -> Iterator[Path]:
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if "." in name or not isinstance(file, str):
            continue
        path = Path(file)
        if path == import_dir / f"{name}.py":
            yield path
        elif path == import_dir / name / "__init__.py":
            yield from path.parent.rglob("*.py")
