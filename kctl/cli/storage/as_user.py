"""`kctl storage` by root for the fleet of another user: what it does to the storage is done as that user.

What a configuration names is its user's choice: a server, a file of keys that is sent there. Libraries of
others open it. So it is done by a process that has none of root's environment and memory, and no way back to root.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

import typer

from kctl.children import python_module, safe_environment
from kctl.config.load import is_setting_variable
from kctl.privileges import User, become, environment_of

if TYPE_CHECKING:
    from kctl.config import Config

__all__ = ["become_owner", "import_packages"]

_USER = "_KCTL_USER"
"""Has `[uid, gid, [group, …]]` in the process that is to become this user."""
_KEPT = frozenset({"KCTL_DEBUG", "TERM", "COLUMNS", "LINES"})
_LOADED = (
    "deltalake",
    "deltalake.fs",
    "encodings.ascii",
    "kctl.cli.output",
    "kctl.config.storage",
    "kctl_agent.storage.lake.compaction",
    "kctl_agent.storage.lake.dead_letters",
    "kctl_agent.storage.lake.folder.s3",
    "kctl_agent.storage.lake.upkeep_lock",
    "kctl_agent.storage.lake.vacuum",
    "obstore.store",
    "pyarrow.acero",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydoc",
)
_LOADED_FOR_REDIS = (
    "encodings.idna",
    "email.parser",
    "importlib.metadata",
    "importlib.readers",
    "redis",
    "redis.backoff",
    "redis.retry",
)


def import_packages(config: Config) -> None:
    """What is used of a storage, before our own files may become unreadable."""
    for name in (*_LOADED, *(_LOADED_FOR_REDIS if config.storage.mode == "redis" else ())):
        with suppress(ImportError):  # what is not installed is reported where it is needed
            import_module(name)


def become_owner(user: User, words: Sequence[str], config: Config) -> None:
    """Go on as this user, in a process of its own.

    Raises typer.Exit: in this one, when that has ended, with its exit code.
    """
    asked = os.environ.pop(_USER, None)
    if asked is None:
        raise typer.Exit(_run(user, words, config))
    import_packages(config)
    become(*json.loads(asked))


def _run(user: User, words: Sequence[str], config: Config) -> int:
    """The same command line once more; in a session of its own, which cannot type into root's terminal."""
    kept = {name: text for name, text in os.environ.items() if name in _KEPT or is_setting_variable(name)}
    given = {"KCTL_CONFIG": str(config.path), _USER: json.dumps(user[:3])}
    sys.stdout.flush()
    process = subprocess.Popen(
        python_module("kctl", *words),
        env=safe_environment({**environment_of(user), **kept, **given}),
        start_new_session=True,
    )
    try:
        code = process.wait()
    except KeyboardInterrupt:
        process.send_signal(signal.SIGINT)
        code = process.wait()
    return code if code >= 0 else 128 - code
