import json
import os
import socket
import tempfile
from pathlib import Path

import pytest

from kctl.cli.entry import run
from kctl.demo.audit import Audit, audit, places
from kctl.demo.summary import DemoOptions, DemoProgress, has_passed, show, summary
from kctl.errors import JarsMissing, JavaMissing
from kctl_agent.storage.block import Block, encode
from tests.conformance.given import chunk


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def test_a_port_that_is_taken_is_rejected(temporary: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code = run(["demo", "--broker-only", "--port", port])

    assert (code, list(temporary.iterdir())) == (13, [])
    assert f"--port {port} cannot be used, or is taken: choose another" in capsys.readouterr().err


def test_without_java_the_demo_reports_that_first(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)

    code = run(["demo"])

    assert (code, os.listdir(temporary)) == (JavaMissing.exit_code, [])
    assert "there is no `java` on the PATH" in capsys.readouterr().err


@pytest.mark.shows("`kctl demo` fetches missing jars; without Java it prints how to install it")
def test_missing_jars_are_fetched_and_without_a_repository_the_demo_names_the_reason(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KCTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KCTL_MAVEN_REPOSITORY", str(tmp_path / "nothing"))

    code = run(["demo"])

    reported = capsys.readouterr().err.splitlines()
    assert (code, os.listdir(temporary)) == (JarsMissing.exit_code, [])
    assert reported[0].startswith("jars: downloading ")
    assert "jars could not be downloaded from file:" in reported[-1]


PRODUCED = {("t", 0): 10}


def block(start: int, end: int) -> Block:
    return Block("t", None, 0, start, end - 1, end - start, encode(chunk(start, end).columns))


@pytest.mark.parametrize(
    ("blocks", "stored_offsets", "expected"),
    [
        ([(0, 4)], {("t", 0): 4}, Audit(10, 4, 0, 0, not_stored=6)),
        ([(0, 2), (3, 8)], {("t", 0): 8}, Audit(10, 7, 1, 0, not_stored=2)),
        ([(0, 8), (6, 9)], None, Audit(10, 11, 1, 2)),
    ],
    ids=["above the stored offset it is not stored yet", "below it is lost", "without one all should be stored once"],
)
def test_what_is_missing_is_lost_or_not_stored_yet(
    blocks: list[tuple[int, int]], stored_offsets: dict[tuple[str, int], int] | None, expected: Audit
) -> None:
    assert audit(places([block(*each) for each in blocks]), PRODUCED, stored_offsets=stored_offsets) == expected


WANTED = DemoOptions(workers=1, partitions=1, rate=10, seconds=None, storage="file", sinkers=1)
ENDED = "the broker (pid 7) has ended: signal 9, SIGKILL"
WHOLE = Audit(produced=3, stored=3, lost=0, duplicated=0, handled=3)


def test_a_demo_whose_part_has_ended_has_not_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = summary(WHOLE, DemoProgress(), 3, 0, WANTED, ENDED)
    assert not has_passed(found, WANTED)

    show(found, "table", tmp_path, is_handled=True, passed=False)
    assert capsys.readouterr().out.splitlines()[-1] == f"{ENDED}; all of the demo is kept in {tmp_path}"
    show(found, "json", tmp_path, is_handled=True, passed=False)
    printed = capsys.readouterr()
    assert json.loads(printed.out) == found
    assert printed.err == f"kctl: all of the demo is kept in {tmp_path}\n"

    found = summary(None, DemoProgress(), 3, 2, WANTED, ENDED)
    unknown = {"stored", "lost", "duplicated", "not_stored", "handled", "handled_again", "dead"}
    assert {found[name] for name in unknown} == {None}, "what can no longer be counted"
    assert (found["produced"], found["not_acknowledged"], found["ended_by_itself"]) == (3, 2, ENDED)
