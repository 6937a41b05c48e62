"""Names, errors and log lines with escape sequences, shown by every command on a pseudo terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from kctl_agent.replies.questions import QUESTIONS, named
from tests.command_lines import Master
from tests.replies import status_json
from tests.servers.scripted_agent import Answers
from tests.terminals import on_a_terminal

BAD = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\u2066[link=http://x]y[/link][/x]\x08\x7f\r"
SUPERVISED = status_json(
    name=BAD,
    desired=BAD,
    state="backoff",
    pid=None,
    last_error=BAD,
    warning=BAD,
    log=BAD,
    paused=[{"topic": BAD, "partition": None, "by": BAD, "since": 0}],
)


def filled(kind: Any) -> Any:
    """A value of this type as JSON; each text in it is `BAD`."""
    origin, of = get_origin(kind), get_args(kind)
    if kind in (str, bool, int, float):
        return BAD if kind is str else kind(1)
    if origin is tuple:
        return [filled(of[0])]
    if origin is Mapping:
        return {filled(of[0]): filled(of[1])}
    if origin is not None:
        return filled(next(each for each in of if each is not type(None)))
    return {name: filled(each) for name, each in get_type_hints(kind).items()}


RESULTS: dict[str, dict[str, Any]] = {
    **{name: filled(named(each.sent)) for name, each in QUESTIONS.items()},
    "status": {
        "rows": [SUPERVISED],
        "verdict": {"level": "failing", "about": BAD, "reason": BAD, "since": 1.0},
        "lag": {
            "total": 1,
            "unknown": 0,
            "worst": [{"topic": BAD, "partition": 0, "status": BAD, "lag": 1, "reason": BAD}],
        },
    },
    "orders": {"rows": []},
}


TABLES = [*(f"rpc {name}" for name in QUESTIONS), "status", "orders"]
ERRORS = f"rpc {BAD}", f"-c /{BAD} start", f"status --{BAD}", f"config check -c {BAD}"
ONE_BY_ONE = """import sys
from kctl.cli.entry import run
for words in sys.argv[1:]:
    print("=" * 9, run(words.split(" ")))"""


@pytest.mark.shows("message bytes, names, errors and log lines cannot steer the terminal; JSON stays the same document")
def test_tables_and_errors_cannot_steer_the_terminal(master: Master) -> None:
    """One process prints them all, which starts as slowly as it would for each."""
    master({name: Answers(result) for name, result in RESULTS.items()})
    words = [*TABLES, *ERRORS]

    seen = on_a_terminal(*words, command=(sys.executable, "-c", ONE_BY_ONE)).decode("utf-8", "surrogateescape")

    *printed, _ = re.split(r"={9} \d+\r\n", seen)
    for each, text in zip(words, printed, strict=True):
        assert text.replace("\r\n", "").isprintable(), ascii(text)
        assert each in ("rpc block_size", "orders") or r"\u001b]0;owned" in text, (each, text)


def test_top_shows_markup_and_escapes_as_text(master: Master) -> None:
    master({name: Answers(result) for name, result in RESULTS.items()})

    text = on_a_terminal("top", "--every", "60", until="q: end").decode("utf-8", "surrogateescape")

    assert r"\u001b]0;owned\u0007" in text
    assert "[link=http://x]y[/link][/x]" in text
    for bad in ("\x1b]", "\x9b", "\u202e", "\u2066", "\x08", "\x7f", "\x07"):
        assert bad not in text, ascii(bad)


def test_lines_of_a_log_cannot_steer_the_terminal_and_a_pipe_gets_them_raw(master: Master, tmp_path: Path) -> None:
    log = tmp_path / "w.log"
    log.write_text(f"{BAD}\nnext\tline\n")
    master({"status": Answers({"rows": [status_json(name="w", log=str(log))]})})

    text = on_a_terminal("logs", "w").decode("utf-8", "surrogateescape")

    assert text.replace("\r\n", "").replace("\t", "").isprintable(), ascii(text)
    assert r"\u001b]0;owned" in text
    piped = subprocess.run([sys.executable, "-m", "kctl", "logs", "w"], capture_output=True, check=True).stdout
    assert piped == log.read_bytes()
