"""The command line, and any Python, run by another user: a real second uid, which only root can become."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

__all__ = ["NOBODY", "needs_root", "run_as_nobody"]

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

_BECOME_NOBODY = f"""
import importlib, os, pkgutil, socket, sys
import kctl, kctl_agent.messages, kctl_agent.wire
for module in pkgutil.walk_packages(kctl.__path__, "kctl."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
"""
"""Everything is imported first: the interpreter of the tests may lie in a folder that only root can read."""


def run_as_nobody(code: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Python `code` as another user, with `arguments` in sys.argv[1:]; kctl is imported already."""
    return subprocess.run(
        [sys.executable, "-c", _BECOME_NOBODY + code, *arguments],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
