"""Other people's applications import the agent's socket half, so it requires no package."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import kctl_agent

ROOT = Path(kctl_agent.__file__).parent
SOCKET_HALF = sorted(
    path.relative_to(ROOT) for path in (*ROOT.glob("*.py"), *ROOT.glob("rpc/**/*.py"), *ROOT.glob("replies/*.py"))
)


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
