"""Builds the command lines and environments of Python child processes."""

import os
import shutil
import sys
from collections.abc import Mapping

PRIVATE = 0o077  # the umask of the master and all its children: only their user can open their files
_PATH = "PYTHONPATH"


def python_module(name: str, *arguments: str) -> tuple[str, ...]:
    # `-P` keeps Python from importing from the working directory, where another user may have put code.
    return (sys.executable, "-P", "-m", name, *arguments)


def dies_with_parent(signal_name: str) -> list[str]:
    """Returns a prefix for a command. When the thread that started the command ends, the kernel sends the signal to
    the command (PR_SET_PDEATHSIG). The prefix is empty if setpriv is not installed."""
    # A preexec_fn is unsafe in a process with threads.
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", signal_name] if setpriv else []


def safe_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns an environment, with settings and secrets, for a child that loads the configuration. Prevents imports
    from the working directory, also in Python processes that the child starts."""
    # Python treats an empty entry, as in `PYTHONPATH=$PYTHONPATH:/opt/lib`, as the working directory.
    path = os.pathsep.join(filter(os.path.isabs, env.get(_PATH, "").split(os.pathsep)))
    return {
        **{name: text for name, text in env.items() if name != _PATH},
        **({_PATH: path} if path else {}),
        "PYTHONSAFEPATH": "1",
    }


def child_environment(env: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Returns a worker's or sinker's environment. It omits settings and secrets, because the process runs user code."""
    from kctl.config.load import is_setting_variable
    from kctl.secrets import SECRET_VARIABLES

    kept = {name: text for name, text in env.items() if name not in SECRET_VARIABLES and not is_setting_variable(name)}
    return safe_environment(kept)
