"""`python -m kctl_agent.user_code KIND NAME FOLDER SECONDS`: tries to import a handler or transform.

For `kctl config check`. KIND is `handler`, `transform`, `batch_transform` or `typed_transform`. Prints an error, or an
empty line. The code's output goes to stderr. After SECONDS, the process prints its stacks to stderr and exits with 1.
If Java is installed, a transform other than a `typed_transform` is also called, with an empty DataFrame.
"""

import faulthandler
import os
import shutil
import sys
from pathlib import Path

from kctl_agent.process.bootstrap import BootstrapError
from kctl_agent.process.tracebacks import plain, traceback_of


def main(kind: str, name: str, folder: str, seconds: str) -> None:
    """Ends the process even if threads of the imported code still run."""
    faulthandler.enable()
    faulthandler.dump_traceback_later(float(seconds), exit=True)
    stdout = os.dup(1)
    os.dup2(2, 1)
    sentence = ""
    try:
        _load(kind, name, Path(folder))
    except BootstrapError as error:
        sentence = plain(str(error))
        if error.__cause__ is not None:
            sys.stderr.write(traceback_of(error.__cause__))
    sys.stdout.flush()
    sys.stderr.flush()
    os.write(stdout, f"{sentence}\n".encode())
    os._exit(0)


def _load(kind: str, name: str, folder: Path) -> None:
    if kind == "handler":
        from kctl_agent.sinker.handler import load

        load(name, 1.0, folder)
        return
    from kctl_agent.worker.query.transform import load_transform, try_transform

    transform = load_transform(name, folder)
    if kind != "typed_transform" and (shutil.which("java") or os.environ.get("JAVA_HOME")):
        try_transform(transform, name, is_of_batches=kind == "batch_transform")


if __name__ == "__main__":
    main(*sys.argv[1:])
