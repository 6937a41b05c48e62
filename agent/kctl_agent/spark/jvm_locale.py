"""The locale of a JVM, by which Java names files: where it is not one of UTF-8, several names become one (`m?ll`), or
none can be written. So it is on a host that lacks the locale that it is set to (`LANG=de_DE.UTF-8` by ssh)."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

LC_ALL = "LC_ALL"
UTF8 = "C.UTF-8"
"""The value of `LC_ALL` for a JVM, if the machine has it."""
PYTHON_LC_ALL = f"spark.executorEnv.{LC_ALL}"
"""The locale of the executors' Pythons, which inherit the JVM's else."""
_ASK = "import _locale as l; l.setlocale(l.LC_ALL, ''); print(l.nl_langinfo(l.CODESET))"


def is_utf8(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether a JVM with this environment takes names of files for UTF-8. As it does, all categories are set at once:
    where one of them is not there, all stay those of `C`. In a process of its own, for this one has other threads."""
    process = subprocess.run(
        [sys.executable, "-P", "-S", "-c", _ASK],
        env={**environment, "PYTHONCOERCECLOCALE": "0"},  # which a JVM does not do either
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="ascii",
        check=False,
    )
    return process.stdout.strip().upper() in ("UTF-8", "UTF8")
