"""`__all__` is honest: every module of the agent's socket half names what it defines for others."""

from __future__ import annotations

import ast
import importlib
import sys
from pathlib import Path

import pytest

import kctl_agent

ROOT = Path(kctl_agent.__file__).parent
SOCKET_HALF = sorted(path.relative_to(ROOT) for folder in (ROOT, ROOT / "commands") for path in folder.glob("*.py"))
MODULES = [".".join(("kctl_agent", *path.with_suffix("").parts)).removesuffix(".__init__") for path in SOCKET_HALF]


def public(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def top_level(module: str) -> list[ast.stmt]:
    return ast.parse(Path(importlib.import_module(module).__file__ or "").read_text()).body


def functions_and_classes(module: str) -> set[str]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return public({node.name for node in top_level(module) if isinstance(node, kinds)})


def constants(module: str) -> set[str]:
    targets: list[ast.expr] = []
    for node in top_level(module):
        if isinstance(node, ast.AnnAssign):
            targets.append(node.target)
        elif isinstance(node, ast.Assign):
            targets += node.targets
    return public({target.id for target in targets if isinstance(target, ast.Name)})


@pytest.mark.parametrize("module", MODULES)
def test_a_module_names_what_it_defines(module: str) -> None:
    listed = importlib.import_module(module).__all__

    assert list(listed) == sorted(set(listed), key=lambda name: (not name.isupper(), not name[:1].isupper(), name))
    assert functions_and_classes(module) - set(listed) == set(), "defined, public, not listed"
    assert constants(module) - set(listed) == set(), "defined, public, not listed"
    assert [name for name in listed if not hasattr(importlib.import_module(module), name)] == [], "listed, not there"


@pytest.mark.shows("the agent's socket half needs the standard library only")
@pytest.mark.parametrize("path", SOCKET_HALF, ids=str)
def test_the_socket_half_imports_nothing_beyond_the_standard_library(path: Path) -> None:
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}

    foreign = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
    assert foreign <= {"kctl_agent"}
