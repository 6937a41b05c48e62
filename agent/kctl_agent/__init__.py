"""The part of kctl in a fleet's processes and in attached applications. An agent answers requests at a process's Unix
socket, and uses only the standard library. The packages `worker` and `storage` need `kctl-agent[worker]`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kctl_agent.attached.application import Attached

if __name__ != "kctl_agent":  # a folder called `agent` on sys.path is shadowed silently by PySpark's addPyFile
    raise ImportError(f"import kctl_agent, not {__name__}")

from kctl_agent.version import __version__

__all__ = ["__version__", "attach"]


def attach(
    spark: Any,
    *,
    name: str | None = None,
    run_dir: str | Path | None = None,
    bootstrap_servers: str | None = None,
    commit_group: str | None = None,
    kafka: dict[str, Any] | None = None,
) -> Attached:
    """Shows how far your PySpark application's current and future queries have read. Does not change the application.

    Pass `run_dir`, `commit_group` or both. `run_dir` is the folder of a fleet on this host. The application joins that
    fleet under `name`, which defaults to `commit_group`, and listens at `run_dir`/`name`.sock. With `commit_group`,
    kctl commits the end offset of the last finished batch to that group, so that ordinary tools see its lag. While the
    group has members, kctl does not commit.

    Broker addresses and security settings come from the queries. To override the addresses, pass `bootstrap_servers`.
    To override both, also pass `kafka`, a dict of kafka-python settings such as `security_protocol`.

    All this ends when you close the returned object or the application ends. Raises ValueError if a required argument
    is missing. Raises PathError if the socket cannot be created or another process serves it.
    """
    from kctl_agent.attached.application import Attached  # needs PySpark, which a mere guest must not import

    name = name or commit_group
    if name is None or (run_dir is None and commit_group is None):
        raise ValueError("attach needs commit_group, or name and run_dir, the folder of a fleet on this host")
    if kafka is not None:
        kafka = {"bootstrap_servers": bootstrap_servers, **kafka}
        if not kafka["bootstrap_servers"]:
            raise ValueError("attach needs bootstrap_servers with kafka={…}")
    folder = None if run_dir is None else Path(run_dir)
    attached = Attached(spark, name, folder, commit_group, bootstrap_servers, kafka)
    attached.start()
    return attached
