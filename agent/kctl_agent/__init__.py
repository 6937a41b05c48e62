"""The part of kctl inside a worker's process: Unix socket agent, Spark worker, storage.

The socket half (`wire`, `messages`, `errors`, `paths`, `server`, `commands`) uses the standard library only;
`worker` and `storage` need the extra `worker`. `attach` is for applications that kctl does not start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from kctl_agent.attached.application import Attached

if __name__ != "kctl_agent":  # a folder called `agent` on sys.path is shadowed silently by PySpark's addPyFile
    raise ImportError(f"import kctl_agent, not {__name__}")

from kctl_agent.version import __version__

__all__ = ["__version__", "attach"]


def attach(
    spark: Any,
    *,
    name: str,
    run_dir: str | Path,
    bootstrap_servers: str | None = None,
    commit_group: str | None = None,
) -> Attached:
    """Makes a PySpark application of yours a part of a fleet: `run_dir`/`name`.sock answers for all Kafka sources of
    all its queries, those that run and those to come. Nothing in the application changes.

    `bootstrap_servers` is found out from the queries when it is not given. With `commit_group` the end offset of each
    finished batch is committed to that group, so that ordinary tools see its lag; not while the group has a member.
    Close what is returned, or let the application's end do it. Raises PathError: the socket cannot be made there, or
    somebody serves it already."""
    from kctl_agent.attached.application import Attached  # needs PySpark, which a mere guest must not import

    attached = Attached(spark, name, run_dir, bootstrap_servers, commit_group)
    attached.start()
    return attached
