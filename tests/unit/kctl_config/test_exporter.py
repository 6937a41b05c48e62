"""What `kctl exporter` reads of a file, beside what the command line names."""

from __future__ import annotations

from pathlib import Path

import pytest

from kctl.cli.groups.api_client import URL
from kctl.config.exporter import load_exporter
from kctl.config.sections import HttpSection
from kctl.errors import ConfigError


def test_a_cluster_of_the_command_line_beside_those_of_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "exporter.toml"
    path.write_text('[clusters.main]\nbootstrap_servers = "one:9092"\n')

    with pytest.raises(ConfigError, match=r"has \[clusters\.main\], and -b names a cluster too: leave one of the two"):
        load_exporter(path, {}, None, "two:9092")

    path.write_text("[http]\nport = 1\n")
    loaded = load_exporter(path, {}, None, "two:9092")
    assert (loaded.clusters["default"].bootstrap_servers, loaded.http.port) == ("two:9092", 1)


def test_an_exporter_and_a_fleet_on_one_machine_do_not_both_take_the_same_port() -> None:
    port = load_exporter(None, {}, None, "one:9092").http.port

    assert (port, HttpSection().port, URL) == (9751, 9750, f"http://127.0.0.1:{port}")
