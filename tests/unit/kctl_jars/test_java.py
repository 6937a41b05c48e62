from __future__ import annotations

import os
from pathlib import Path

import pytest

from kctl.jars.java import java_command

JAVA = """#!/bin/sh
cut -d' ' -f5 /proc/$$/stat > "$0.group"
echo 'openjdk version "17.0.15"' >&2
"""


def test_a_ctrl_c_of_the_terminal_does_not_reach_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(JAVA)
    java.chmod(0o700)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_command() == java
    assert int(Path(f"{java}.group").read_text()) != os.getpgrp(), "it is in a process group of its own"
