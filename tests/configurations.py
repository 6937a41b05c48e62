"""Configurations of fleets."""

from collections.abc import Mapping
from pathlib import Path

from kctl.config.load import load
from kctl.config.sections import Config

KAFKA = '[kafka]\nbootstrap_servers = "one:9092"\ngroup = "g"\ntopics = ["t"]\n'  # the smallest configuration


def loaded(folder: Path, text: str = KAFKA, env: Mapping[str, str] = {}, overrides: Mapping[str, str] = {}) -> Config:
    path = folder / "kctl.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, env, overrides)
