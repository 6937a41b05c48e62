from __future__ import annotations

import shlex
from pathlib import Path

from kctl_agent.spark.session import java_options


def test_the_options_of_the_user_come_last(tmp_path: Path) -> None:
    words = shlex.split(java_options(tmp_path / "with a space", "-Xss4m -XX:Tier4BackEdgeThreshold=40000"))

    assert f"-Djava.io.tmpdir={tmp_path}/with a space" in words
    assert "-XX:+ExitOnOutOfMemoryError" in words
    assert words[-2:] == ["-Xss4m", "-XX:Tier4BackEdgeThreshold=40000"]
