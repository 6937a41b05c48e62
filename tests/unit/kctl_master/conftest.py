"""Tests marked `anyio` run on asyncio, the loop that the master runs on."""

from __future__ import annotations

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
