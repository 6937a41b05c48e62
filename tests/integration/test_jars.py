"""The jar locks and their fetcher, against local repositories: no network, a real Java and Ivy."""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from kctl.errors import ConfigError, JarsMissing, RunDirUnusable
from kctl.jars.ivy import fetch
from kctl.jars.lock import Jar, jar_paths, jars_dir, parse_lock

CONTENTS = {"alpha": b"alpha's bytes", "beta": b"beta's bytes, a few more"}


class Repository:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.lock = tuple(
            Jar("org.example.parts", name, "1.2", hashlib.sha256(content).hexdigest(), len(content))
            for name, content in CONTENTS.items()
        )
        for jar in self.lock:
            self.path(jar).parent.mkdir(parents=True)
            self.path(jar).write_bytes(CONTENTS[jar.artifact])

    def path(self, jar: Jar) -> Path:
        return self.root / "org/example/parts" / jar.artifact / jar.version / jar.file_name


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Replaces both packaged locks by the repository's own. The cache is empty."""
    made = Repository(tmp_path / "a repository")
    for module in ("lock", "ivy"):
        monkeypatch.setattr(f"kctl.jars.{module}.read_lock", lambda name: made.lock)
    monkeypatch.setenv("KCTL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("KCTL_MAVEN_REPOSITORY", str(made.root))
    return made


def cached_names() -> list[str]:
    return sorted(path.name for path in jars_dir().iterdir() if path.name != ".lock")


@pytest.mark.parametrize(
    "line",
    [
        "org.example:part:1.2",
        "org.example:part sha256:" + "0" * 64 + " 1",
        "a:b:1 sha256:" + "0" * 63 + " 1",
        "../a:b:c",
    ],
)
def test_a_lock_line_that_is_not_one_is_rejected_with_its_number(line: str) -> None:
    with pytest.raises(ValueError, match="line 2 is not"):
        parse_lock(f"# a comment\n{line}\n")


@pytest.mark.parametrize("form", ["directory", "file:", "file://"])
def test_a_repository_is_a_folder_or_an_url(repository: Repository, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = {"directory": str(repository.root), "file://": repository.root.as_uri()}
    monkeypatch.setenv("KCTL_MAVEN_REPOSITORY", urls.get(form, repository.root.as_uri().replace("file://", "file:")))
    seen: list[str] = []

    with pytest.raises(JarsMissing, match=r"2 of the 2 jars of the broker lock .*alpha-1.2.jar.*`kctl jars fetch`"):
        jar_paths("broker")
    assert fetch(progress=seen.append) == 2

    megabytes = f"{sum(jar.size_bytes for jar in repository.lock) / 1e6:.0f}"
    assert seen == [f"jars: downloading 2 ({megabytes} MB)\n", f"jars: 2 of 2, {megabytes} of {megabytes} MB\n"]
    assert [path.read_bytes() for path in jar_paths("spark")] == list(CONTENTS.values())
    assert cached_names() == ["alpha-1.2.jar", "beta-1.2.jar"]


@pytest.mark.shows("kctl does not use a cache of jars that all users can write to")
@pytest.mark.shows("a second fetch of jars needs no network; two at once download each jar once")
def test_a_cache_is_used_without_java_or_repository_and_must_be_private(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetch()
    alpha, beta = jar_paths("broker")
    assert [alpha.name, beta.name] == [jar.file_name for jar in repository.lock]

    with monkeypatch.context() as away:
        away.setenv("JAVA_HOME", "/nowhere")
        away.setenv("KCTL_MAVEN_REPOSITORY", "/nowhere")
        assert (fetch(), fetch(verify=True)) == (0, 0)

    alpha.write_bytes(b"y" * alpha.stat().st_size)
    assert (fetch(), fetch(verify=True)) == (0, 1), "a jar that was changed is replaced when it is verified"
    assert alpha.read_bytes() == CONTENTS["alpha"]

    for mode in (0o777, 0o1777):
        jars_dir().chmod(mode)
        with pytest.raises(ConfigError if os.geteuid() == 0 else RunDirUnusable, match=f"has mode {mode:04o}"):
            jar_paths("broker")


@pytest.mark.shows("downloads show progress and are verified: jars by sha256, Python packages by hash")
def test_a_tampered_or_missing_jar_is_named_and_not_kept(repository: Repository) -> None:
    beta = repository.lock[1]
    tampered = b"x" * beta.size_bytes
    repository.path(beta).write_bytes(tampered)

    with pytest.raises(JarsMissing) as caught:
        fetch()

    assert beta.coordinate in str(caught.value)
    assert beta.sha256 in str(caught.value)
    assert hashlib.sha256(tampered).hexdigest() in str(caught.value)
    assert cached_names() == ["alpha-1.2.jar"]
    assert not list(jars_dir().glob(".fetch-*"))

    (jars_dir() / "alpha-1.2.jar").unlink()
    repository.path(beta).unlink()
    with pytest.raises(JarsMissing, match=r"1 of 2 jars .*\(first: org.example.parts:beta:1.2\).*not found"):
        fetch()
    assert cached_names() == ["alpha-1.2.jar"]


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("KCTL_MAVEN_REPOSITORY", "http://127.0.0.1:1/m2", "2 of 2 jars .*http://127.0.0.1:1/m2.*Connection refused"),
        ("KCTL_CACHE_DIR", "/dev/null", "set KCTL_CACHE_DIR to another folder"),
    ],
)
def test_an_unreachable_repository_and_an_unwritable_cache_are_named(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str
) -> None:
    monkeypatch.setenv(variable, value)

    with pytest.raises(JarsMissing, match=reason):
        fetch()


def test_two_fetchers_at_once_download_each_jar_once(repository: Repository) -> None:
    together = Barrier(2)

    def fetch_together() -> int:
        together.wait(60)
        return fetch()

    with ThreadPoolExecutor(2) as pool:
        downloaded = [future.result(60) for future in [pool.submit(fetch_together) for _ in range(2)]]

    assert sorted(downloaded) == [0, 2]
    assert cached_names() == ["alpha-1.2.jar", "beta-1.2.jar"]
