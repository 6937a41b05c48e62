"""The JSON Schema of kctl.toml allows what `load` allows, for rules on a single value."""

from __future__ import annotations

import tomllib
from contextlib import nullcontext
from pathlib import Path

import jsonschema_rs
import pytest

from kctl.config.schema import json_schema
from kctl.errors import ConfigError
from tests.configurations import KAFKA, loaded

ROOT = Path(__file__).parents[3]
VALIDATOR = jsonschema_rs.Draft7Validator(json_schema())


@pytest.mark.parametrize("path", ["examples/kctl.toml", "deploy/compose/kctl.toml", "deploy/kubernetes/base/kctl.toml"])
def test_files_of_the_repository_are_valid(path: str) -> None:
    VALIDATOR.validate(tomllib.loads((ROOT / path).read_text(encoding="utf-8")))


ALLOWED = (
    "",
    "static_membership = true",
    '[spark.conf]\n"spark.ui.enabled" = false\nspark.sql.shuffle.partitions = 4\n[spark]\njars = ["a.jar"]',
    '[contexts.prod]\nbootstrap_servers = "b:1"\n[clusters.main]\nbootstrap_servers = "c:1,d:2"',
    "[collect]\ninterval_seconds = 2",
)
REJECTED = (
    *("count = 1", "[kafak]", "[http]\nport = 65536", "[http]\nport = true", '[collect]\ninterval_seconds = "2"'),
    *('[log]\nlevel = "debug"', '[workers]\nmemory_soft = "2 GB"', '[exporter]\ngroups = ["/a"]'),
    *('[fleet]\nrun_dir = ""', '[contexts."a b"]\nbootstrap_servers = "b:1"'),
    "[contexts.prod]\ntls_check_hostname = false",
)


@pytest.mark.parametrize("more", [*ALLOWED, *REJECTED])
def test_a_value_is_valid_when_it_can_be_used(tmp_path: Path, more: str) -> None:
    with nullcontext() if more in ALLOWED else pytest.raises(ConfigError):
        loaded(tmp_path, KAFKA + more)

    assert VALIDATOR.is_valid(tomllib.loads(KAFKA + more)) == (more in ALLOWED)
