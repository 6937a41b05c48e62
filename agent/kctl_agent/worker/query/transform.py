"""The user's transform, a function DataFrame -> DataFrame that keeps no state between batches. Only a transform for a
table may move or combine records. Also ships the imported user modules to executors on other machines.

The Python processes of an engine outlive a worker and would keep old code. So their environment contains the version of
the modules. If the version changes, Spark starts new processes.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl_agent.errors import AgentError
from kctl_agent.process.bootstrap import BootstrapError, loaded
from kctl_agent.process.tracebacks import first_line, place_of
from kctl_agent.spark.session import lost_jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


VARIABLE = "KCTL_CODE_VERSION"


def code_version(import_dir: Path) -> dict[str, str]:
    versions = sorted(filter(None, (_described(module, import_dir) for module in list(sys.modules.values()))))
    if not versions:
        return {}
    return {VARIABLE: hashlib.sha256("\n".join(versions).encode()).hexdigest()[:16]}


def forget_code(name: str, import_dir: Path) -> None:
    """Makes the next import reload the module of `module:function` and all modules in `import_dir`."""
    module = name.partition(":")[0]
    for known in [each for each, found in sys.modules.items() if each == module or _described(found, import_dir)]:
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
    """Ships the user's modules through Spark's file server. Ships only what this process has imported, because
    `import_dir` may contain secrets. Call it before Spark first runs a Python function. Raises OSError."""
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


COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
RECORDS = (
    "key binary, value binary, topic string, partition int, offset long, timestamp timestamp, timestampType int, "
    "headers array<struct<key: string, value: binary>>"
)

FIXED = ("CANNOT_MODIFY_STATIC_CONFIG", "CANNOT_MODIFY_CONFIG")
NODE = re.compile(r"\W*(\w+)")
MOVING = ("Repartition", "RebalancePartitions", "Sort", "Aggregate", "Join", "Window", "Deduplicate", "Union", "Offset")


class TransformFailed(AgentError, code="transform_failed", retriable=True):
    """The transform raised an exception when it was called. The next query calls the transform again."""

    def __init__(self, name: str, error: BaseException) -> None:
        super().__init__(f"the transform {name} raised {type(error).__name__}: {first_line(error)}{place_of(error)}")


def load_transform(name: str, import_dir: Path) -> Callable[[DataFrame], DataFrame]:
    if not name:
        return lambda frame: frame
    transform: Callable[[DataFrame], DataFrame] = loaded("workers.transform", name, import_dir)
    if not callable(transform):
        raise BootstrapError(f"workers.transform {name!r} is not a function")
    return transform


def call_transform(transform: Callable[[DataFrame], DataFrame], name: str, frame: DataFrame) -> DataFrame:
    try:
        return transform(frame)
    except Exception as error:
        if lost_jvm(error) is not None:
            raise
        if (key := _fixed_by(error)) is None:
            raise TransformFailed(name, error) from error
        raise BootstrapError(
            f"the transform {name} cannot set {key}: Spark fixes it when the driver starts; set it in "
            "[spark.conf], for all workers"
        ) from None


def _fixed_by(error: Exception) -> str | None:
    from pyspark.errors import PySparkException

    if not isinstance(error, PySparkException) or error.getCondition() not in FIXED:
        return None
    parameters = error.getMessageParameters() or {}
    return str(parameters.get("key", "this configuration")).strip('"')


def check_transform(name: str, frame: DataFrame) -> None:
    if not name:
        return
    missing = [column for column in COLUMNS if column not in frame.columns]
    if missing:
        raise BootstrapError(f"the transform {name} drops {', '.join(missing)}; it must keep {', '.join(COLUMNS)}")
    plan = frame._jdf.queryExecution().analyzed().toString()  # noqa: SLF001 - explain() only prints
    nodes = {node.group(1) for line in plan.splitlines() if (node := NODE.match(line))}
    moved = sorted(node for node in nodes if node.startswith(MOVING))
    if moved:
        raise BootstrapError(
            f"the transform {name} moves records ({', '.join(moved)}); it must be stateless and leave each record "
            "in its partition and order"
        )


def try_transform(transform: Callable[[DataFrame], DataFrame], name: str, *, is_of_batches: bool) -> None:
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    try:
        made = call_transform(transform, name, spark.createDataFrame([], RECORDS))
    except TransformFailed as error:
        raise BootstrapError(str(error)) from error.__cause__
    if not is_of_batches:
        check_transform(name, made)
