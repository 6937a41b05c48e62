"""`python -m kctl_agent.user_code`: imports a handler or a transform as its process will, for `kctl config check`.

Reads `{"kind": "handler" | "transform" | "batch_transform", "name": …, "import_dir": …}` from stdin and writes
`{"error": …, "traceback": …}` to stdout; a transform is called with no records where there is a Java.
"""

from __future__ import annotations

import faulthandler
import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.process.tracebacks import plain, traceback_of


def main() -> None:
    """Imports and reports. Does not return: threads that the code has started do not hold the process."""
    faulthandler.enable()  # a caller that waits in vain sends SIGABRT, and the place where it hangs is on stderr
    request = json.loads(sys.stdin.readline())
    stdout = os.dup(1)
    os.dup2(2, 1)
    error, trace = _wrong_with(_loader(request["kind"]), request["name"], Path(request["import_dir"]))
    sys.stdout.flush()
    os.write(stdout, json.dumps({"error": error, "traceback": trace}).encode())
    os._exit(0)


def _loader(kind: str) -> Callable[[str, Path], object]:
    if kind == "handler":
        from kctl_agent.sinker.handler import load

        return lambda name, import_dir: load(name, 1.0, import_dir)
    from kctl_agent.worker.query.transform import load_transform, try_transform

    def called(name: str, import_dir: Path) -> None:
        transform = load_transform(name, import_dir)
        if shutil.which("java") or os.environ.get("JAVA_HOME"):
            try_transform(transform, name, is_of_batches=kind == "batch_transform")

    return called


def _wrong_with(load: Callable[[str, Path], object], name: str, import_dir: Path) -> tuple[str | None, str | None]:
    try:
        load(name, import_dir)
    except BootstrapError as error:
        cause = error.__cause__
        return plain(str(error)), None if cause is None else traceback_of(cause)
    return None, None


if __name__ == "__main__":
    main()
