"""The version of the user's code in a worker. Spark starts other Pythons for another environment, so the environment
contains the version: an engine's Pythons outlive a worker."""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from pathlib import Path

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
