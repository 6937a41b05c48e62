"""The user's modules that this process has imported: their version, and how they reach executors on other machines.

An engine's Pythons outlive a worker, and Spark starts new ones only if their environment changes. So the environment
contains the version.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VARIABLE = "KCTL_CODE_VERSION"


def code_version(import_dir: Path) -> dict[str, str]:
    versions = sorted(filter(None, (_described(module, import_dir) for module in list(sys.modules.values()))))
    if not versions:
        return {}
    return {VARIABLE: hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]}


def forget_code(name: str, import_dir: Path) -> None:
    """Makes the module of `module:function` and everything in `import_dir` be imported again."""
    module = name.partition(":")[0]
    for known in [each for each, loaded in sys.modules.items() if each == module or _described(loaded, import_dir)]:
        del sys.modules[known]
    importlib.invalidate_caches()


def _described(module: object, import_dir: Path) -> str:
    path = getattr(module, "__file__", None)
    if not isinstance(path, str) or not path.startswith(f"{import_dir}{os.sep}"):
        return ""
    try:
        status = os.stat(path)
    except OSError:
        return ""
    return f"{path} {status.st_size} {status.st_mtime_ns}"


_EPOCH = (1980, 1, 1, 0, 0, 0)
"""A fixed time for each file, so that the same modules make the same archive."""


def ship_modules(context: Any, import_dir: Path) -> None:
    """Ships the user's modules through Spark's file server: those of `import_dir` that this process has imported,
    because the folder may contain secrets. Call it with a SparkContext before its first Python function. Raises
    OSError."""
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
