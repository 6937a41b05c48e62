"""Whether tests can use a redis-server."""

from __future__ import annotations

import os
import shutil

import pytest


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


def require_redis() -> None:
    """Skips a test if it is missing; in CI the test fails."""
    if not is_installed():
        reason = "redis-server is missing: apt-get install redis-server"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
