"""PySpark's daemon, which forks a Python for each task. Before the first fork, it imports what tasks need."""

import gc
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from kctl_agent.peers import is_own


def import_for_tasks() -> None:
    sys.path[:] = worth_searching(sys.path)
    for path in set(sys.path_importer_cache).difference(sys.path):
        del sys.path_importer_cache[path]

    import pyspark.worker  # noqa: F401 - each fork would import it, and so write to 15 MB that it shares

    # Forks lack threads started here. jemalloc restarts its own. OpenBLAS has none: Spark sets OMP_NUM_THREADS to 1.
    import kctl_agent.storage.file
    import kctl_agent.worker.query.put  # noqa: F401


def worth_searching(paths: list[str]) -> list[str]:
    """Returns `paths` without copies of an installed PySpark or Py4J, and without Spark's jar.

    Spark's PYTHONPATH begins with zip files of PySpark's and Py4J's sources, which each daemon would compile (0.3 s of
    CPU time). It ends with the jar of Spark's core, whose list of 5,900 files each fork would read
    (`importlib.invalidate_caches` in pyspark/worker_util.py, 65 ms and 11 MB).
    """
    return [path for path in paths if not (_is_copy(Path(path), paths) or _is_jar_of_spark(Path(path)))]


def for_own_user(serve: Callable[[socket.socket, bool], int]) -> Callable[[socket.socket, bool], int]:
    """Makes `serve` reject other users. PySpark's own check first reads the peer's secret, which may have 2 GB."""

    def serve_own(connection: socket.socket, is_authenticated: bool) -> int:
        if is_authenticated or is_own(connection):
            return serve(connection, is_authenticated)
        connection.close()
        return 1

    return serve_own


def _is_copy(path: Path, paths: list[str]) -> bool:
    of_pyspark = path.parts[-4:-1] == ("pyspark", "python", "lib")
    return of_pyspark and path.suffix == ".zip" and str(path.parents[3]) in paths


def _is_jar_of_spark(path: Path) -> bool:
    return path.name.startswith("spark-core_") and path.suffix == ".jar"


if __name__ == "__main__":
    import_for_tasks()
    from pyspark import daemon

    daemon.worker = for_own_user(daemon.worker)
    gc.collect()
    gc.freeze()  # so that a fork's garbage collector does not copy pages
    daemon.manager()
