"""Whether there is a redis-server for a test."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["is_installed", "require_redis"]


def is_installed() -> bool:
    return shutil.which("redis-server") is not None


def require_redis() -> None:
    """A test that needs it is skipped where it is missing, and fails in CI."""
    if not is_installed():
        reason = "redis-server is missing: apt-get install redis-server"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
