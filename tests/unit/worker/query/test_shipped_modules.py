from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kctl_agent.worker.query.transform import load_transform
from kctl_agent.worker.query.user_modules import ship_modules


class Context:
    """A SparkContext whose JVM has `folder`."""

    def __init__(self, folder: Path) -> None:
        system = SimpleNamespace(getProperty=lambda _: str(folder))
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
        self.shipped: list[Any] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.shipped.append(path)


@pytest.fixture
def import_dir(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "fleet"
    (folder / "kctl_test_package").mkdir(parents=True)
    (folder / "kctl_test_package" / "__init__.py").write_text("")
    (folder / "kctl_test_package" / "later.py").write_text("number = 1")
    (folder / "kctl_test_steps.py").write_text("import kctl_test_package\ndef same(frame): return frame\n")
    (folder / "kctl_test_other.py").write_text("")
    (folder / "s3.credentials").write_text("secret")
    path, known = list(sys.path), set(sys.modules)
    yield folder
    sys.path[:] = path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def test_executors_get_only_the_modules_that_the_transform_imports(import_dir: Path, tmp_path: Path) -> None:
    load_transform("kctl_test_steps:same", import_dir)
    context = Context(tmp_path)

    ship_modules(context, import_dir)

    [path] = context.shipped
    with zipfile.ZipFile(path) as archive:
        assert set(archive.namelist()) == {
            "kctl_test_steps.py",
            "kctl_test_package/",
            "kctl_test_package/__init__.py",
            "kctl_test_package/later.py",
        }


def test_executors_can_import_a_package_without_an_init_file(import_dir: Path, tmp_path: Path) -> None:
    (import_dir / "kctl_test_folder" / "deep").mkdir(parents=True)
    (import_dir / "kctl_test_folder" / "deep" / "steps.py").write_text("def same(frame): return frame\n")
    load_transform("kctl_test_folder.deep.steps:same", import_dir)
    context = Context(tmp_path)

    ship_modules(context, import_dir)

    script = f"import sys; sys.path.insert(0, {context.shipped[0]!r}); import kctl_test_folder.deep.steps"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_what_a_killed_worker_has_left_half_written_is_replaced(import_dir: Path, tmp_path: Path) -> None:
    load_transform("kctl_test_steps:same", import_dir)
    context = Context(tmp_path)
    ship_modules(context, import_dir)
    [path] = context.shipped
    whole = Path(path).read_bytes()
    Path(path).write_bytes(whole[:100])

    ship_modules(context, import_dir)

    assert Path(path).read_bytes() == whole


def test_changed_modules_have_another_name_and_the_same_ones_the_same(import_dir: Path, tmp_path: Path) -> None:
    """Spark reuses a file whose name it knows."""
    load_transform("kctl_test_steps:same", import_dir)
    context = Context(tmp_path)

    ship_modules(context, import_dir)
    ship_modules(context, import_dir)
    (import_dir / "kctl_test_package" / "later.py").write_text("number = 2")
    ship_modules(context, import_dir)

    first, again, changed = context.shipped
    assert first == again != changed
