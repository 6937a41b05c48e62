"""The JSON Schema of kctl.toml allows what `load` allows, for rules on a single value."""

from __future__ import annotations

import tomllib
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


@pytest.mark.parametrize(
    ("more", "is_allowed"),
    [
        ("", True),
        ("static_membership = true", True),
        ('[spark.conf]\n"spark.ui.enabled" = false\nspark.sql.shuffle.partitions = 4', True),
        ('[spark]\njars = ["a.jar"]', True),
        ('[contexts.prod]\nbootstrap_servers = "b:1"\n[clusters.main]\nbootstrap_servers = "c:1,d:2"', True),
        ("[collect]\ninterval_seconds = 2", True),
        ("count = 1", False),
        ("[kafak]", False),
        ("[http]\nport = 65536", False),
        ("[http]\nport = true", False),
        ('[collect]\ninterval_seconds = "2"', False),
        ('[log]\nlevel = "debug"', False),
        ('[workers]\nmemory_soft = "2 GB"', False),
        ('[exporter]\ngroups = ["/a"]', False),
        ('[fleet]\nrun_dir = ""', False),
        ('[contexts."a b"]\nbootstrap_servers = "b:1"', False),
        ("[contexts.prod]\ntls_check_hostname = false", False),
    ],
)
def test_a_value_is_valid_when_it_can_be_used(tmp_path: Path, more: str, is_allowed: bool) -> None:
    try:
        loaded(tmp_path, KAFKA + more)
        is_loaded = True
    except ConfigError:
        is_loaded = False

    assert (VALIDATOR.is_valid(tomllib.loads(KAFKA + more)), is_loaded) == (is_allowed, is_allowed)
