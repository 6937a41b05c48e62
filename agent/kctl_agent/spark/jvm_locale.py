"""The locale of a JVM, which determines how Java encodes file names.

If it is not UTF-8, several names become one (`m?ll`), or none can be written. That happens on a host without its
configured locale (`LANG=de_DE.UTF-8` by ssh).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping

LC_ALL = "LC_ALL"
UTF8 = "C.UTF-8"
PYTHON_LC_ALL = f"spark.executorEnv.{LC_ALL}"
"""The executors' Pythons otherwise inherit the JVM's locale."""
_ASK = "import _locale as l; l.setlocale(l.LC_ALL, ''); print(l.nl_langinfo(l.CODESET))"


def is_utf8(environment: Mapping[str, str] = os.environ) -> bool:
    """Asks in another process, because this one has threads. Like the JVM, it sets all categories at once: if one is
    missing, all stay `C`."""
    process = subprocess.run(
        [sys.executable, "-P", "-S", "-c", _ASK],
        env={**environment, "PYTHONCOERCECLOCALE": "0"},  # a JVM does not coerce it either
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="ascii",
        check=False,
    )
    return process.stdout.strip().upper() in ("UTF-8", "UTF8")
