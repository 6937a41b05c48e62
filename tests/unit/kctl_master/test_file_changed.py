from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kctl.config.load import load
from kctl.config.sections import Config
from kctl.master.launch import launches, names
from kctl.master.operations.context import Context
from kctl.master.process_supervisor import Launch
from kctl.operations.reload import ReloadConfig

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


class Processes:
    def __init__(self, config: Config) -> None:
        self.names = names(config)
        self._processes = {
            each.name: SimpleNamespace(name=each.name, state="running", pid=1, launch=each, started_with=each.settings)
            for each in launches(config, [])
        }

    def process(self, name: str) -> SimpleNamespace:
        return self._processes[name]

    def reconfigure(self, launches: list[Launch], _policies: object) -> None:
        for each in launches:
            self._processes[each.name].launch = each


@pytest.mark.parametrize(
    ("before", "now", "reported"),
    [
        (
            'handler = "module:wrong"',
            'handler = "module:right"',
            "after `kctl restart sinker-0 sinker-1 --rolling`: sinkers.handler module:wrong -> module:right",
        ),
        (
            'topics = ["t"]',
            'topics = ["t", "u"]',
            'after `kctl stop` and `kctl start`: kafka.topics ["t"] -> ["t", "u"]',
        ),
    ],
)
async def test_a_reload_names_those_that_need_a_start(tmp_path: Path, before: str, now: str, reported: str) -> None:
    file = tmp_path / "kctl.toml"
    text = TOML.format(group="g", count=2, handler="module:wrong")
    file.write_text(text)
    config, nobody = load(file, {}), cast("Any", None)
    context = Context(config, cast("Any", Processes(config)), nobody, nobody, nobody, [], [], lambda: load(file, {}))

    file.write_text(text.replace(before, now))

    assert (await ReloadConfig().carry_out(context, nobody, nobody))[0] == reported
