import importlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kctl_agent.process.bootstrap import BootstrapError, log_trace
from kctl_agent.spark.conf import configuration
from kctl_agent.worker.query.daemon import worth_searching
from kctl_agent.worker.query.transform import VARIABLE, code_version, load_transform, ship_modules
from tests.worker_settings import driver


@pytest.fixture(autouse=True)
def own_modules() -> Iterator[None]:
    path, known = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - known:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("code", "complaint"),
    [
        ("def clean(", "SyntaxError"),
        ("raise OSError('no licence')", "OSError: no licence"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("other = 1", "has no attribute 'clean'"),
        ("clean = 1", "is not a function"),
    ],
)
def test_bad_transforms_end_starts(code: str, complaint: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "kctl_test_bad.py").write_text(code)

    with pytest.raises(BootstrapError) as failure:
        load_transform("kctl_test_bad:clean", tmp_path)

    assert "workers.transform 'kctl_test_bad:clean'" in str(failure.value)
    assert complaint in str(failure.value)
    log_trace(failure.value)
    is_raised_at_the_import = ":" in complaint or complaint == "SyntaxError"
    assert (f"    {complaint}" in caplog.text) == is_raised_at_the_import
    assert ('kctl_test_bad.py", line 1' in caplog.text) == is_raised_at_the_import


def test_only_imports_from_the_folder_count_and_each_change(tmp_path: Path) -> None:
    sys.path.insert(0, str(tmp_path))
    for name in ("imported_of_test", "other_of_test"):
        (tmp_path / f"{name}.py").write_text("VALUE = 1\n")
    nothing = code_version(tmp_path)
    importlib.import_module("imported_of_test")
    first = code_version(tmp_path)
    (tmp_path / "other_of_test.py").write_text("VALUE = 22\n")
    same = code_version(tmp_path)
    (tmp_path / "imported_of_test.py").write_text("VALUE = 22\n")
    changed = code_version(tmp_path)

    assert nothing == {}
    assert first == same
    assert first[VARIABLE] != changed[VARIABLE]


def test_executors_find_a_transform_where_the_driver_did_and_nowhere_else(tmp_path: Path) -> None:
    plain = configuration(driver(tmp_path))
    given = {"spark.executorEnv.PYTHONPATH": "/srv/modules"}
    transforming = configuration(driver(tmp_path, transform="cleaning:clean", conf=given))

    assert plain["spark.executorEnv.PYTHONSAFEPATH"] == transforming["spark.executorEnv.PYTHONSAFEPATH"] == "1"
    assert "spark.executorEnv.PYTHONPATH" not in plain
    assert transforming["spark.executorEnv.PYTHONPATH"] == os.pathsep.join((str(tmp_path), "/srv/modules"))


class Context:
    def __init__(self, tmp_path: Path) -> None:
        system = SimpleNamespace(getProperty=lambda _: str(tmp_path))
        self._jvm = SimpleNamespace(java=SimpleNamespace(lang=SimpleNamespace(System=system)))
        self.shipped: list[Any] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802 - Spark's name
        self.shipped.append(path)


@pytest.fixture
def import_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "fleet"
    (folder / "kctl_test_package").mkdir(parents=True)
    (folder / "kctl_test_package" / "__init__.py").write_text("")
    (folder / "kctl_test_package" / "later.py").write_text("number = 1")
    (folder / "kctl_test_steps.py").write_text("import kctl_test_package\ndef same(frame): return frame\n")
    (folder / "kctl_test_other.py").write_text("")
    (folder / "s3.credentials").write_text("secret")
    return folder


def test_executors_can_import_a_package_without_an_init_file(import_dir: Path, tmp_path: Path) -> None:
    (import_dir / "kctl_test_folder" / "deep").mkdir(parents=True)
    (import_dir / "kctl_test_folder" / "deep" / "steps.py").write_text("def same(frame): return frame\n")
    context = Context(tmp_path)
    load_transform("kctl_test_folder.deep.steps:same", import_dir)

    ship_modules(context, import_dir)

    script = f"import sys; sys.path.insert(0, {context.shipped[0]!r}); import kctl_test_folder.deep.steps"
    subprocess.run([sys.executable, "-c", script], check=True)


def test_executors_get_only_imported_modules_named_by_their_content(import_dir: Path, tmp_path: Path) -> None:
    """Spark reuses a file whose name it knows, and a killed worker may leave half of one."""
    context = Context(tmp_path)
    load_transform("kctl_test_steps:same", import_dir)

    ship_modules(context, import_dir)
    whole = Path(context.shipped[0]).read_bytes()
    with zipfile.ZipFile(context.shipped[0]) as archive:
        package = [f"kctl_test_package/{name}" for name in ("", "__init__.py", "later.py")]
        assert set(archive.namelist()) == {"kctl_test_steps.py", *package}
    Path(context.shipped[0]).write_bytes(whole[:100])
    ship_modules(context, import_dir)
    (import_dir / "kctl_test_package" / "later.py").write_text("number = 2")
    ship_modules(context, import_dir)

    first, again, changed = context.shipped
    assert first == again != changed
    assert Path(first).read_bytes() == whole


def test_it_imports_what_a_put_needs_and_starts_no_thread_that_a_fork_would_lack() -> None:
    code = (
        "import os, sys\n"
        "from kctl_agent.worker.query.daemon import import_for_tasks\n"
        "import_for_tasks()\n"
        "print(*(open(f'/proc/self/task/{task}/comm').read().strip() for task in os.listdir('/proc/self/task')))\n"
        "print(*(name in sys.modules for name in ('kctl_agent.worker.query.put', 'pyarrow', 'pyspark.worker')))\n"
    )

    env = {**os.environ, "OMP_NUM_THREADS": "1"}  # as Spark sets it for its Pythons

    threads, imported = subprocess.check_output([sys.executable, "-c", code], env=env, text=True).splitlines()

    assert set(threads.split()) <= {Path(sys.executable).name, "python", "python3", "jemalloc_bg_thd"}
    assert len([name for name in threads.split() if name != "jemalloc_bg_thd"]) == 1
    assert imported == "True True True"


def test_of_pyspark_the_installed_one_is_imported_and_no_copy_of_it_but_that_of_another_spark_is() -> None:
    zips = "/env/site-packages/pyspark/python/lib/pyspark.zip", "/opt/spark/python/lib/pyspark.zip"

    assert worth_searching([*zips, "/env/site-packages", "/own.zip"]) == [zips[1], "/env/site-packages", "/own.zip"]
    assert worth_searching([*zips, "/elsewhere"]) == [*zips, "/elsewhere"]
