"""What every test may use: short folders, waiting for events, and a check for leftovers."""

from __future__ import annotations

import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import psutil
import pytest

if TYPE_CHECKING:
    from selenium import webdriver

# An example's time depends more on the machine's other work than on the code.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

pytest.register_assert_rewrite("tests.conformance")  # whose modules are no `test_*.py`

BRIEF_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # a JVM that lives for seconds compiles quickly, not well
os.environ.setdefault("SPARK_LAUNCHER_OPTS", BRIEF_JVM)  # of the JVM that puts together the command of Spark's JVM

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # In a shell's background job, children would also ignore Ctrl-C, which some tests send them.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A hundred masters and workers are started: what they import is compiled once, also where nothing may be written beside
# the sources (PYTHONDONTWRITEBYTECODE; images set it).
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.pycache_prefix = os.environ.setdefault("PYTHONPYCACHEPREFIX", str(Path(sys.prefix) / "bytecode"))
sys.dont_write_bytecode = False

OUTLIVING: set[int] = set()  # browsers' drivers and shared masters outlive a test, and start and end processes
PRELOADED: set[int] = set()  # others are forked from these processes, which outlive a test (tests/preloaded.py)
FOR_TESTS = ("KCTL_CACHE_DIR", "KCTL_MAVEN_REPOSITORY", "KCTL_TEST_")  # prefixes of variables that reach the tests


def pytest_collection_finish() -> None:
    """Freezes imported objects, because garbage collection among them takes a twentieth of a run's processor time."""
    gc.freeze()


def eventually(probe: Callable[..., Any], seconds: float = 60.0, what: str = "") -> Any:
    """Returns the first truthy value of `probe()` before the deadline. Slow or expensive conditions are probed less
    often, because probe and answer share the processors."""
    began = time.monotonic()
    deadline = began + seconds
    pause = threading.Event()
    while True:
        asked = time.monotonic()
        value = probe()
        if value:
            return value
        now = time.monotonic()
        if now > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what or probe}; last value {value!r}")
        pause.wait(max(min(0.02 + (now - began) / 50, 0.2), min(2 * (now - asked), 1.0)))


def raising(error: BaseException) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error

    return fail


def require_programs(packages: str, *names: str) -> list[str]:
    """Returns their paths. If a program is missing, the test is skipped, and fails in CI."""
    found = {name: shutil.which(name) or "" for name in names}
    if missing := [name for name, path in found.items() if not path]:
        reason = f"{' and '.join(missing)} missing: apt-get install {packages}"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return list(found.values())


def on_this_machine(seconds: float) -> float:
    """Extends `seconds` of an idle machine, up to a minute, if more processes want to run than there are processors."""
    return max(seconds, min(seconds * os.getloadavg()[0] / (os.cpu_count() or 1), 60.0))


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"  # as in the master


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder whose path leaves room for a socket name (107 bytes in all)."""
    path = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def chromium() -> Iterator[webdriver.Chrome]:
    from tests.browser import browser_of_a_session

    with browser_of_a_session() as driver:
        yield driver


@pytest.fixture(scope="session")
def runtime_folder() -> Iterator[Path]:
    # Creating and removing a folder takes longer than most tests, so all tests of this process share one.
    path = Path(tempfile.mkdtemp(prefix="x", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def own_surroundings(runtime_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Isolates tests from the user's settings, fleets and audit log."""
    for name in list(os.environ):
        if name.startswith("KCTL_") and not name.startswith(FOR_TESTS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime_folder))
    monkeypatch.setenv("XDG_STATE_HOME", str(runtime_folder / "state"))
    yield
    for path in runtime_folder.iterdir():
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Checks that a test leaves no thread or child process. Restores the umask, and removes a log that a process run in
    the test has set up: pytest closes its stream, and each later line would be a "Logging error"."""
    threads, children, umask = set(threading.enumerate()), _children(), os.umask(0o077)
    os.umask(umask)
    level = logging.root.level
    yield
    os.umask(umask)
    logging.root.setLevel(level)
    logging.root.handlers[:] = [each for each in logging.root.handlers if type(each) is not logging.StreamHandler]
    eventually(lambda: not new_threads(threads), what="threads of the test are still there")
    eventually(lambda: not (_children() - children), what="child processes of the test are still there")


def new_threads(before: set[threading.Thread]) -> list[threading.Thread]:
    """Ignores threads that libraries keep for later."""
    return [
        t
        for t in threading.enumerate()
        if t not in before and not t.name.startswith(("asyncio_", "AnyIO worker", "kctl-disk", "pytest_timeout"))
    ]


def _children() -> set[int]:
    if not _has_children():
        return set()
    found = {each.pid: each for each in psutil.Process().children(recursive=True)}
    theirs = [each.pid for parent in OUTLIVING & set(found) for each in found[parent].children(recursive=True)]
    return set(found) - set(theirs) - OUTLIVING - PRELOADED


def _has_children() -> bool:
    """Takes less time than psutil, which reads the parent of every process of the machine."""
    try:
        lists = [
            path.read_text()
            for pid in (os.getpid(), *PRELOADED)
            for path in Path(f"/proc/{pid}/task").glob("*/children")
        ]
    except OSError:  # a thread has just ended
        return True
    return not lists or bool({int(word) for text in lists for word in text.split()} - PRELOADED)
