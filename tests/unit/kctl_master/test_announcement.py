from __future__ import annotations

import resource
from pathlib import Path

import pytest

from kctl.errors import RunDirUnusable
from kctl.start.master import announced
from tests.configurations import loaded


@pytest.mark.shows("an error about a full disk names the path")
def test_a_full_disk_is_named_with_the_path_that_could_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "kctl.toml"
    config = loaded(tmp_path)
    config.fleet.run_dir.mkdir()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))  # no file of this process can grow, as on a full disk
    try:
        with pytest.raises(RunDirUnusable) as refused, announced(config, path, "http://127.0.0.1:1"):
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert str(refused.value) == f"{config.fleet.run_dir}/master.json cannot be written (File too large): " + (
        "correct fleet.run_dir"
    )
