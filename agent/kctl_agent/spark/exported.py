"""Sets an environment variable for a JVM that PySpark starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def exported(name: str, text: str) -> Iterator[None]:
    given = os.environ.get(name)
    os.environ[name] = text
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given
