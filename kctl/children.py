"""Python processes started by kctl: what they import, and what of our environment they inherit."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping

PRIVATE = 0o077
"""The umask of the master and all that it starts: their files are for their user alone."""
_SAFE_PATH = {"PYTHONSAFEPATH": "1"}
_PATH = "PYTHONPATH"


def python_module(name: str, *arguments: str) -> tuple[str, ...]:
    """Returns the command that runs an installed module. Without `-P` Python would search the working directory first,
    and run what somebody else has put there."""
    return (sys.executable, "-P", "-m", name, *arguments)


def dies_with_parent(signal_name: str) -> list[str]:
    """Returns the words before a command that have the kernel send it this signal when the thread that starts it ends
    (PR_SET_PDEATHSIG), by util-linux: a preexec_fn is not safe in a process with threads. Empty where there is none."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", signal_name] if setpriv else []


def safe_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a child that reads the configuration itself. Python processes that it starts, also
    those of Spark, do not import from the working directory either."""
    # To Python an entry that is empty, as in `PYTHONPATH=$PYTHONPATH:/opt/lib`, is the working directory.
    path = os.pathsep.join(filter(os.path.isabs, env.get(_PATH, "").split(os.pathsep)))
    return {
        **{name: text for name, text in env.items() if name != _PATH},
        **({_PATH: path} if path else {}),
        **_SAFE_PATH,
    }


def child_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns the environment of a worker or sinker, which runs code of others: without settings and passwords, all of
    which it gets on its stdin."""
    from kctl.config.load import is_setting_variable
    from kctl.secrets import SECRET_VARIABLES

    kept = {name: text for name, text in env.items() if name not in SECRET_VARIABLES and not is_setting_variable(name)}
    return safe_environment(kept)
