from __future__ import annotations

import subprocess
import sys


def imported_by(*words: str) -> set[str]:
    code = (
        "import sys; from kctl.cli.entry import run; code = run(sys.argv[1:]);"
        "print('modules:', *sys.modules, file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    return set(done.stderr.rpartition("modules:")[2].split())
