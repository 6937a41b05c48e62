"""What `kctl exporter` reads of a file, beside what the command line names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.config.exporter import load_exporter
from kctl.errors import ConfigError


def test_a_cluster_of_the_command_line_beside_those_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "exporter.toml"
    path.write_text('[clusters.main]\nbootstrap_servers = "one:9092"\n')

    with pytest.raises(ConfigError, match=r"has \[clusters\.main\], and -b names a cluster too: leave one of the two"):
        load_exporter(path, {}, None, "two:9092")

    path.write_text("[http]\nport = 1\n")
    assert load_exporter(path, {}, None, "two:9092").clusters["default"].bootstrap_servers == "two:9092"
