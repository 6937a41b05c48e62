"""The Java options of a worker's JVM."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

from kctl.jars import java_command
from kctl_agent.worker.session import LATE_C2, java_options


def test_the_options_of_the_user_come_last(tmp_path: Path) -> None:
    words = shlex.split(java_options(tmp_path / "with a space", "-Xss4m -XX:Tier4BackEdgeThreshold=40000"))

    assert f"-Djava.io.tmpdir={tmp_path}/with a space" in words
    assert words[-2:] == ["-Xss4m", "-XX:Tier4BackEdgeThreshold=40000"]


def test_this_java_takes_the_thresholds_of_its_compiler() -> None:
    command = [str(java_command()), *LATE_C2.split(), "-XX:+PrintFlagsFinal", "-version"]

    flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    values = {words[1]: words[3] for words in map(str.split, flags.splitlines()) if len(words) > 3}
    for option in LATE_C2.split():
        name, value = option.removeprefix("-XX:").split("=")
        assert values[name] == value
