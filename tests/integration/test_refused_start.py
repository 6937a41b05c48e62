"""Each unmet condition of a start gives one sentence and an exit code, and leaves nothing half-started."""

import os
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from kctl import fleets
from kctl.master.process import session_members
from tests.preloaded import preloaded
from tests.servers.scripted_agent import ScriptedAgent
from tests.stranger import KCTL, needs_root, run_as_nobody

JAVA_11 = """#!/bin/sh
echo 'openjdk version "11.0.22" 2024-01-16' >&2
"""


class Place:
    def __init__(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.config = config
        self.folder = config.parent
        self.run_dir = config.parent / "run"
        self.env = monkeypatch
        self.held = ExitStack()

    def files(self, *but: str) -> dict[str, int]:
        found = {path.relative_to(self.folder): path.lstat().st_mode for path in self.folder.rglob("*")}
        return {str(path): mode for path, mode in found.items() if path.parts[0] not in but}

    def listener(self) -> str:
        listener = self.held.enter_context(socket.create_server(("127.0.0.1", 0)))
        return str(listener.getsockname()[1])

    def java_11(self) -> Path:
        java = self.folder / "old" / "bin" / "java"
        java.parent.mkdir(parents=True)
        java.write_text(JAVA_11)
        java.chmod(0o755)
        self.env.delenv("JAVA_HOME", raising=False)
        return java


@pytest.fixture
def place(config_file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    place = Place(config_file(), monkeypatch)
    with place.held:
        yield place


def setting(name: str, value: object) -> tuple[str, str]:
    return "--set", f"{name}={value}"


def old_java_home(place: Place) -> None:
    place.env.setenv("JAVA_HOME", str(place.java_11().parents[1]))


def old_java_on_the_path(place: Place) -> None:
    place.env.setenv("PATH", f"{place.java_11().parent}:{os.environ['PATH']}")


def no_java(place: Place) -> None:
    place.env.delenv("JAVA_HOME", raising=False)
    place.env.setenv("PATH", str(place.folder))


def entered_by_others(place: Place) -> None:
    place.run_dir.mkdir()
    place.run_dir.chmod(0o750)


def too_long(place: Place) -> tuple[str, ...]:
    return setting("fleet.run_dir", place.folder / ("x" * (108 - len(f"{place.folder}//worker-0.sock"))))


def no_log_dir(place: Place) -> tuple[str, ...]:
    (place.folder / "file").touch()
    return setting("fleet.log_dir", place.folder / "file")


def held_socket(place: Place) -> tuple[str, ...]:
    place.held.enter_context(ScriptedAgent(place.run_dir, "worker-1", {}))
    return setting("workers.stop_timeout_seconds", 0)


def refused(
    place: Place,
    log: Path,
    code: int,
    *options: str,
    made: tuple[str, ...] = (),
    command_line: tuple[str, ...] = ("start",),
) -> str:
    words = (*command_line, "-c", str(place.config), *options)
    command = preloaded("tests.integration.master_process")
    before, ours = place.files(*made), psutil.Process().children()

    process = command.start("run_command", log, *words)

    assert process.wait(60) == code, log.read_text()
    assert session_members(process.pid) == [], "a process is left"
    assert place.files(*made) == before
    assert fleets.running() == []
    assert psutil.Process().children() == ours
    *logged, sentence = log.read_text().splitlines()
    assert not logged or made
    assert sentence.startswith("kctl: ")
    return sentence.removeprefix("kctl: ")


@pytest.mark.shows("each failed condition of a start is one sentence with an exit code")
@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        (
            lambda _: setting("kafka.topics", "orders,nothing,nonsense"),
            11,
            "^topics nonsense, nothing do not exist on 127.0.0.1:",
        ),
        (
            lambda _: setting("kafka.bootstrap_servers", "none.invalid:1"),
            10,
            "start it, or correct kafka.bootstrap_serv",
        ),
        (old_java_home, 12, "old/bin/java is Java 11, Spark and Kafka need 17 or newer: install one with `"),
        (old_java_on_the_path, 12, "old/bin/java is Java 11, Spark and Kafka need 17 or newer: install one with `"),
        (no_java, 12, "^there is no `java` on the PATH: install one with `sudo apt-get install openjdk"),
        (lambda place: setting("http.port", place.listener()), 13, "^port .* on 127.0.0.1 is taken: set http.port to"),
        (entered_by_others, 14, "^run_dir .*/run has mode 0750.* chmod 700 .*/run$"),
        (lambda place: place.run_dir.touch(), 14, "^run_dir .*/run is not a directory"),
        (too_long, 14, "^socket path .*/worker-0.sock has 108 bytes, the limit is 107"),
        (no_log_dir, 14, "fleet.log_dir"),
        (held_socket, 15, "worker-1 .* still runs as pid PID"),
        (lambda _: setting("spark.jars", "no.jar"), 16, "no.jar"),
    ],
)
def test_what_must_hold_before_a_start_is_one_sentence_each_and_leaves_nothing_behind(
    place: Place, tmp_path: Path, given: Callable[[Place], tuple[str, ...] | None], code: int, sentence: str
) -> None:
    options = given(place) or ()

    made = ("data", "logs") if given in (no_log_dir, held_socket) else ()

    shown = refused(place, tmp_path / "log", code, *options, made=made)

    assert re.search(sentence.replace("PID", str(os.getpid())), shown), shown
    if code in (10, 11):
        checked = refused(place, tmp_path / "check", code, *options, command_line=("config", "check"))
        assert re.search(sentence, checked), checked


@needs_root
def test_a_run_dir_that_cannot_be_written_is_rejected(place: Place) -> None:
    place.folder.chmod(0o755)
    before = place.files()

    done = run_as_nobody(KCTL, "start", "-c", str(place.config))

    assert done.returncode == 14
    assert done.stderr == (
        f"kctl: run_dir {place.run_dir} cannot be made (Permission denied): choose one that you may write to\n"
    )
    assert place.files() == before
