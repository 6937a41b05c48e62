"""An application attached to a fleet, as a process that ends in any way; its Spark is a stand-in."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_CODE = """
import os, pathlib, sys, threading
from kctl_agent.attached.application import Attached

class Streams:
    active = ()

class Spark:
    streams = Streams()

attached = Attached(Spark(), sys.argv[1], pathlib.Path(sys.argv[2]), None, None, None)
attached.start()
print(flush=True)
exec(sys.argv[3])
"""


@contextmanager
def guest(run_dir: Path, name: str, ending: str = "threading.Event().wait()") -> Iterator[subprocess.Popen[bytes]]:
    """Waits until it is attached. `ending` is the Python code that ends it."""
    words = [sys.executable, "-c", _CODE, name, str(run_dir), ending]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline(), "it is not attached"
        try:
            yield process
        finally:
            process.kill()
