"""Runs the command line, or any Python, as another user: a real second uid, which only root can become."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

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
"""  # for the command line: only root may be able to read the tests' interpreter
KCTL = "from kctl.cli import main; sys.exit(main())"  # for `run_as_nobody`

_ASK_IMPORTS = """
from pathlib import Path
from tests.caller import Caller, question
"""
_ASK = """
with Caller(Path(sys.argv[1])) as caller:
    try:
        caller.send(question(sys.argv[2]))
    except BrokenPipeError:  # the socket is closed before all is sent
        pass
    reply = caller.read()
    print(os.getuid(), reply.error and reply.error.code, caller.is_ended())
"""

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
    """Runs Python `code` as another user, with `arguments` in sys.argv[1:]. Runs `imports` first, as root."""
    before = _IMPORT_ALL if code == KCTL else imports
    return subprocess.run(
        [sys.executable, "-c", before + BECOME_NOBODY + code, *arguments],
        env=env, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def answer_to_nobody(path: Path, rpc: str) -> list[str]:
    """Returns the other user's uid, the error code of a socket's answer, and whether the connection has then ended."""
    asked = run_as_nobody(_ASK, str(path), rpc, imports=_ASK_IMPORTS)
    assert asked.stderr == ""
    return asked.stdout.split()


def taken_of_a_line(address: str, port: int) -> int:
    """Returns how many bytes (at most 64 MiB) of an endless line another user can send to a port."""
    return int(subprocess.check_output([sys.executable, "-c", _FLOOD, address, str(port)], timeout=60))
