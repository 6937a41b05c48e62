"""The command line, and any Python, run by another user: a real second uid, which only root can become."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")

BECOME_NOBODY = f"""
import os, socket, sys
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
"""

_IMPORT_ALL = """
import importlib, pkgutil, kctl
for module in pkgutil.walk_packages(kctl.__path__, "kctl."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""
"""For the command line: only root may be able to read the tests' interpreter."""
KCTL = "from kctl.cli import main; sys.exit(main())"
"""The command line, for `run_as_nobody`."""

_FLOOD = f"""
{BECOME_NOBODY}
sent, block = 0, b"x" * (1 << 20)
with socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as peer:
    peer.settimeout(10)
    try:
        peer.connect((sys.argv[1], int(sys.argv[2])))
        while sent < 64 << 20:
            sent += peer.send(block)
    except OSError:
        pass
print(sent)
"""


def run_as_nobody(
    code: str, *arguments: str, imports: str = "", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs Python `code` as another user, with `arguments` in sys.argv[1:]; runs `imports` before, as root."""
    before = _IMPORT_ALL if code == KCTL else imports
    return subprocess.run(
        [sys.executable, "-c", before + BECOME_NOBODY + code, *arguments],
        env=env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def taken_of_a_line(address: str, port: int) -> int:
    """How many bytes, of at most 64 MiB, of an endless line another user can send to a port."""
    return int(subprocess.check_output([sys.executable, "-c", _FLOOD, address, str(port)], timeout=60))
