"""Every output in docs/kafka-commands.md is what its command prints."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.cli.kafka.commands import COMMANDS
from tests.integration.kafka_page import PAGE, blocks, known_state, normalised, output_of
from tests.servers.kafka_broker import KafkaBroker

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")


@pytest.mark.shows("every output in docs/kafka-commands.md is what its command prints")
def test_every_output_on_the_page_is_what_is_printed(short_dir: Path) -> None:
    shown = blocks(PAGE.read_text(encoding="utf-8"))

    with KafkaBroker(short_dir / "broker") as broker, known_state(broker.bootstrap_servers, short_dir) as env:
        printed = [output_of(command, env) for command, _ in shown]

    for (command, reported), real in zip(shown, printed, strict=True):
        assert normalised(reported) == normalised(real), f"{command}; python -m tests.integration.kafka_page"


def test_every_command_is_on_the_page_with_its_output() -> None:
    commands = [command for command, _ in blocks(PAGE.read_text(encoding="utf-8"))]

    for name in COMMANDS:
        assert any(command.startswith(f"kctl kafka {name} ") or command == f"kctl kafka {name}" for command in commands)
