"""The guest in a worker process: Unix socket agent, Spark worker, storage.

The socket half (`wire`, `messages`, `errors`, `paths`, `server`, `commands`) uses the standard library only;
`worker` and `storage` need the extra `worker`.
"""

from __future__ import annotations

if __name__ != "kctl_agent":  # a folder called `agent` on sys.path is shadowed silently by PySpark's addPyFile
    raise ImportError(f"import kctl_agent, not {__name__}")

__version__ = "0.1.0"
__all__ = ["__version__"]
