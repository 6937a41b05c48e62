from __future__ import annotations

import argparse
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from kctl.cli.command import parsed
from kctl.cli.kafka.changes import change
from kctl.cli.kafka.commands import COMMANDS
from kctl.cli.kafka.produce import line
from tests.command_lines import Kctl
from tests.unit.kctl_cli.imported_modules import imported_by

COMMAND = pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS.keys())
CLOSED = "127.0.0.1:1"


@COMMAND
def test_every_command_has_a_help_page_with_an_example(kctl: Kctl, command: object) -> None:
    name = command.name  # type: ignore[attr-defined]  # a Command; pytest hides its type

    ran = kctl("kafka", name, "--help")

    assert ran.code == 0
    assert ran.out.startswith(f"Usage: kctl kafka {name} ")
    page = " ".join(ran.out.split())
    for text in (
        COMMANDS[name].examples.partition("\n")[0].partition("    ")[0],
        "10 no broker answers",
        *(each.help[1:] for each in COMMANDS[name].options),
    ):
        assert " ".join(text.split()) in page


@COMMAND
def test_the_examples_can_be_parsed(command: object) -> None:
    import shlex

    name = command.name  # type: ignore[attr-defined]  # as above
    for words in (each.partition("    ")[0] for each in COMMANDS[name].examples.splitlines()):
        line = shlex.split(words.rpartition("| ")[2])
        parsed(COMMANDS[name], line[3:])


@pytest.mark.parametrize(("dry_run", "code"), [(True, 0), (False, 2)])
def test_a_change_that_cannot_be_confirmed_fails_unless_it_is_a_dry_run(dry_run: bool, code: int) -> None:
    options = argparse.Namespace(execute=False, dry_run=dry_run, output="json")
    shown: list[bool] = []

    def show(*, executed: bool) -> None:
        shown.append(executed)

    nothing = cast("Any", None)
    assert (change(options, {}, nothing, "delete-topic", "Do it?", show, nothing), shown) == (code, [False])


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("lagg",), "there is no command `kctl kafka lagg`; the nearest is `lag`"),
        (("lag", "-g", "x", "-b", "nowhere"), "-b takes HOST:PORT"),
        (("lag", "-g", "x", "--timeout", "0"), "not a number above 0"),
        (("lag", "-g", "x"), "name a cluster: -b HOST:PORT"),
        (
            ("lag", "-b", CLOSED),
            f"name a group: -g GROUP, --all, or a kctl.toml with -c or KCTL_CONFIG; "
            f"`kctl kafka groups -b {CLOSED}` lists them",
        ),
        (("lag", "-b", CLOSED, "-t", "orders"), "name a group: -g GROUP, --all,"),
        (("lag",), "name a cluster: -b HOST:PORT"),
        (("group", "-b", CLOSED), "name a group: GROUP, --all, or a kctl.toml"),
        (("topic",), "required: TOPIC"),
        (("list-offsets", "-b", CLOSED), "give a topic"),
        (("list-offsets", "-b", CLOSED, "-t", "x", "--time", "soon"), "`soon` is no time"),
        (("list-offsets", "-b", CLOSED, "-t", "x:a"), "`x:a` is no topic with partitions"),
        (("reset-offsets", "-b", CLOSED, "-g", "g", "-t", "x", "--to", "there"), "`there` is no place in a log"),
        (("reset-offsets", "-b", CLOSED, "-g", "g", "-t", "x", "--to", "shift-by"), "is no place in a log"),
        (("reset-offsets", "-b", CLOSED, "-g", "g", "-t", "x", "--to", "-3"), "is no place in a log"),
        (("reset-offsets", "-b", CLOSED, "-g", "g", "-t", "x", "--to", "5", "-y", "--dry-run"), "give one of them"),
        (("delete-topic", "-b", CLOSED, "x", "-y", "--dry-run"), "give one of them"),
        (
            ("create-topic", "-b", CLOSED, "x", "-p", "0"),
            "argument -p/--partitions: `0` is not a whole number, 1 or more",
        ),
        (("create-topic", "-b", CLOSED, "x", "--set", "retention.ms"), "--set takes KEY=VALUE"),
        (("create-topic", "-b", CLOSED, "x", "--set", "a=1", "--set", "a=2"), "--set a is given twice"),
        (("create-topic", "-b", CLOSED, "bad name!"), "`bad name!` is not a valid topic name"),
        (("create-topic", "-b", CLOSED, ".."), "`..` is not a valid topic name"),
        (("alter-topic", "-b", CLOSED, "x"), "give what to alter"),
        (("consume", "-b", CLOSED, "-t", "x", "--from=-x"), "is no place in a log"),
        (
            ("consume", "-b", CLOSED, "-t", "x", "--from", "foo"),
            "@MILLISECONDS, or -N for the last N of each partition",
        ),
        (("produce", "-b", CLOSED, "-t", "x"), "give exactly one of MESSAGE"),
        (("produce", "-b", CLOSED, "-t", "x", "a", "--null"), "give exactly one of MESSAGE"),
        (("produce", "-b", CLOSED, "-t", "x", "a", "--codec", "brotli"), "invalid choice: 'brotli'"),
        (("produce", "-b", CLOSED, "-t", "x", "a", "--header", "b"), "--header takes KEY=VALUE"),
        (("produce", "-b", CLOSED, "-t", "x", "--file", "f", "--repeat", "2"), "--repeat is for one message"),
        (("produce", "-b", CLOSED, "-t", "x", "a", "--key-separator", ":"), "--key-separator reads keys"),
        (("consume", "-b", CLOSED, "-t", "x", "--format", "xml"), "invalid choice: 'xml'"),
    ],
)
def test_what_is_wrong_with_a_command_line_is_one_sentence(kctl: Kctl, words: tuple[str, ...], expected: str) -> None:
    ran = kctl("kafka", *words)

    assert (ran.code, ran.out) == (2, "")
    assert expected in ran.err
    assert ran.err.count("\n") == 1


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
    ran = kctl("kafka", "groups", "-b", CLOSED)

    assert (ran.code, ran.out) == (10, "")
    assert ran.err.endswith(
        f"kctl: no Kafka broker answers at {CLOSED} (connection refused): start it, or correct -b\n"
    )


def test_kctl_kafka_imports_no_client_before_it_is_needed() -> None:
    imported = imported_by("kafka")

    assert "kctl.cli.kafka.commands" in imported
    assert not {"kafka", "kctl.config", "logging", "rich", "pydantic"} & imported


def test_progress_is_printed_with_its_speed_and_what_is_left() -> None:
    half = line(1_000_000, 49_000_000, 100_000_000, 10.0)

    assert half == f"[{'#' * 15:<30}]  50%  1,000,000 messages  4.9 MB/s  100,000 a second  10 s left"
    assert line(10, 100, None, 0.5) == "10 messages  0.0 MB/s  20 a second"
    assert line(0, 0, 100, 0.0).endswith("0%  0 messages  0.0 MB/s  0 a second")
