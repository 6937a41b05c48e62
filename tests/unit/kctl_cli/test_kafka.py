from __future__ import annotations

import argparse
import shlex
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from kctl.cli.command import parsed
from kctl.cli.kafka.changes import change
from kctl.cli.kafka.commands import COMMANDS
from kctl.cli.kafka.produce import line
from tests.command_lines import Kctl


@pytest.mark.parametrize("name", COMMANDS)
def test_the_examples_can_be_parsed(name: str) -> None:
    for words in (each.partition("    ")[0] for each in COMMANDS[name].examples.splitlines()):
        parsed(COMMANDS[name], shlex.split(words.rpartition("| ")[2])[3:])


@pytest.mark.parametrize(("dry_run", "code"), [(True, 0), (False, 2)])
def test_a_change_that_cannot_be_confirmed_fails_unless_it_is_a_dry_run(dry_run: bool, code: int) -> None:
    options = argparse.Namespace(execute=False, dry_run=dry_run, output="json")
    shown: list[bool] = []

    def show(*, executed: bool) -> None:
        shown.append(executed)

    nothing = cast("Any", None)
    assert (change(options, {}, nothing, "delete-topic", "Do it?", show, nothing), shown) == (code, [False])


def test_a_context_file_and_its_mistakes_are_named(kctl: Kctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text('[contexts.prod]\nbootstrap_servers = "b:1"\nsecurity_protocol = "SASL_SSL"\n')

    unknown = kctl("kafka", "groups", "-c", str(file), "--context", "test")
    unfinished = kctl("kafka", "groups", "-c", str(file), "--context", "prod")
    monkeypatch.setenv("KCTL_CONTEXT", "test")
    by_variable = kctl("-c", str(file), "kafka", "groups")
    file.write_text('[contexts.prod]\nbootstrap_servers = "b:1"\ntls_cafile = "x"\n')
    misspelt = kctl("kafka", "groups", "-c", str(file), "--context", "prod")

    assert [ran.code for ran in (unknown, unfinished, by_variable, misspelt)] == [2, 2, 2, 2]
    assert "has no context `test`; there are prod" in unknown.err
    assert by_variable.err == unknown.err
    assert "SCRAM-SHA-512 needs sasl_username, and a password in sasl_password_file" in unfinished.err
    assert "the nearest is `tls_ca_file`" in misspelt.err


def test_an_unreachable_broker_is_reported_with_its_exit_code(kctl: Kctl) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        ran = kctl("kafka", "groups", "-b", f"127.0.0.1:{mute.getsockname()[1]}", "--timeout", "0.3")
    assert (ran.code, "something accepts connections there and does not answer" in ran.err) == (10, True)
    ran = kctl("kafka", "groups", "-b", "127.0.0.1:1")

    assert (ran.code, ran.out) == (10, "")
    assert ran.err.endswith(
        "kctl: no Kafka broker answers at 127.0.0.1:1 (connection refused): start it, or correct -b\n"
    )


def test_progress_is_printed_with_its_speed_and_what_is_left() -> None:
    half = line(1_000_000, 49_000_000, 100_000_000, 10.0)

    assert half == f"[{'#' * 15:<30}]  50%  1,000,000 messages  4.9 MB/s  100,000 a second  10 s left"
    assert line(10, 100, None, 0.5) == "10 messages  0.0 MB/s  20 a second"
    assert line(0, 0, 100, 0.0).endswith("0%  0 messages  0.0 MB/s  0 a second")
