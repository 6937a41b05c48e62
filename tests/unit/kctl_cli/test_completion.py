from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kctl.cli.completion import complete, script
from kctl.cli.entry import tree
from kctl.cli.output import OUTPUTS
from kctl.errors import UsageError
from kctl_agent.replies.questions import QUESTIONS
from tests.command_lines import Kctl


def completed(*words: str) -> list[str]:
    """Lets bash itself complete the last word, by the generated script."""
    lines = [
        script({"SHELL": "/bin/bash"}),
        f"COMP_WORDS=(kctl {' '.join(each or repr('') for each in words)}); COMP_CWORD={len(words)}",
        '_kctl; echo "${COMPREPLY[*]}"',
    ]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", "\n".join(lines)], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.shows("the shell completes commands, their options and the rpc commands")
def test_the_shell_completes_commands_their_options_and_the_rpc_commands() -> None:
    assert completed("st") == ["start", "stop", "status", "stack", "storage"]
    assert completed("rpc", "") == list(QUESTIONS)
    assert completed("rpc", "kafka_lag", "--f") == ["--fail-above"]
    assert completed("rpc", "kafka_lag", "-o", "") == ["table", "wide", "json", "yaml"]
    assert completed("status", "-o", "") == list(OUTPUTS)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("storage dead l", ["list"]),
        ("-c kctl.toml storage dead sh", ["show"]),
        ("pause --topic st", []),
        ("pause --dead", ["--deadline"]),
        ("kafka lag --all --read", ["--read-committed"]),
        ("--deb", ["--debug"]),
    ],
)
def test_what_is_offered_belongs_to_the_command_before_it(words: str, offered: list[str]) -> None:
    assert complete(tree(), words.split(), "bash") == offered


def test_zsh_and_fish_show_meanings_and_an_unknown_shell_is_named(kctl: Kctl, monkeypatch: pytest.MonkeyPatch) -> None:
    assert complete(tree(), ["res"], "zsh")[0] == "resume:End pauses and read again."
    assert complete(tree(), ["res"], "fish")[0] == "resume\tEnd pauses and read again."
    with pytest.raises(UsageError, match=r"^SHELL is `tcsh`: there is completion for bash, zsh, fish$"):
        script({"SHELL": "/bin/tcsh"})
    monkeypatch.setenv("SHELL", "/bin/zsh")

    assert kctl("--show-completion").out == script({"SHELL": "/bin/zsh"}) + "\n"
