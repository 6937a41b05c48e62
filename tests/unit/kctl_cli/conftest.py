from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from kctl import fleets
from tests.command_lines import Kctl, Master, run_here
from tests.servers.scripted_agent import ScriptedAgent, Step


@pytest.fixture
def kctl(capfd: pytest.CaptureFixture[str]) -> Kctl:
    return partial(run_here, capfd)


@pytest.fixture
def master(short_dir: Path) -> Iterator[Master]:
    with ExitStack() as stack:

        def start(script: Mapping[str, Step | Sequence[Step]]) -> ScriptedAgent:
            agent = stack.enter_context(ScriptedAgent(short_dir / "run", "master", script))
            entry = fleets.register("orders", short_dir / "run", short_dir / "kctl.toml")
            stack.callback(fleets.unregister, entry)
            return agent

        yield start
