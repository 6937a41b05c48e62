"""Modules with one changed line, for tests that show that a check would catch the change."""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest


def mutate(name: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Imports a module again with `new` instead of `old`, which must occur once; an empty `old` changes nothing."""
    path = str(import_module(name).__file__)
    source, made = Path(path).read_text(encoding="utf-8"), ModuleType(name)
    assert not old or source.count(old) == 1, f"{old} stands {source.count(old)} times in {path}"
    monkeypatch.setitem(sys.modules, name, made)
    exec(compile(source.replace(old, new) if old else source, path, "exec"), made.__dict__)
    return made
