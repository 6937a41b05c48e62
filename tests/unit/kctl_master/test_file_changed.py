"""A process that starts does not get what was changed in kctl.toml since the master has read it; the answer has a
note."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from kctl.config.load import load
from kctl.master.operations.context import Context

pytestmark = pytest.mark.anyio

TOML = """
[kafka]
bootstrap_servers = "127.0.0.1:9092"
group = "{group}"
topics = ["t"]
[sinkers]
count = {count}
handler = "{handler}"
"""


@pytest.mark.parametrize(
    ("now", "reported"),
    [
        ({}, ""),
        ({"handler": "module:corrected"}, "; kctl.toml has changed since: `kctl reload`"),
        ({"count": 2}, ""),  # as after `kctl scale`
        ({"group": "other"}, ""),  # a reload cannot apply it
        ({"count": -1}, "; kctl.toml has changed since and cannot be used: "),
    ],
)
async def test_a_change_that_a_reload_would_apply_is_named(tmp_path: Path, now: dict[str, Any], reported: str) -> None:
    file = tmp_path / "kctl.toml"
    before = {"group": "g", "count": 1, "handler": "module:wrong"}
    file.write_text(TOML.format(**before))
    nobody = cast("Any", None)
    context = Context(load(file, {}), nobody, nobody, nobody, nobody, [], [], lambda: load(file, {}))

    file.write_text(TOML.format(**{**before, **now}))

    found = await context.file_changed()
    assert found.startswith(reported)
    assert bool(found) == bool(reported)
