"""Fetches missing jars into the cache, one fetcher at a time. A jar is downloaded next to its place, verified by
sha256, and renamed into place, so that a cached file is complete even after a power cut."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kctl.errors import JarsMissing
from kctl.jars import ivy
from kctl.jars.lock import USUAL, Jar, LockName, jars_dir, missing_jars, read_lock, sha256_of

_LINE_EVERY_JARS = 20


def fetch(
    locks: Iterable[LockName] = USUAL, progress: Callable[[str], object] | None = None, *, verify: bool = False
) -> int:
    return fetch_jars((jar for name in locks for jar in read_lock(name)), progress, verify=verify)


def fetch_jars(jars: Iterable[Jar], progress: Callable[[str], object] | None = None, *, verify: bool = False) -> int:
    """Fetches jars into the cache; returns how many were downloaded.

    If none is missing, this costs one stat per jar and starts no Java. `verify` also reads existing jars and replaces
    those with a wrong sha256. `progress` is called with lines. Raises JarsMissing (verified
    jars are kept), JavaMissing.
    """
    locked = tuple(dict.fromkeys(jars))
    if not missing_jars(locked, verify):
        return 0
    directory = jars_dir()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with _only_fetcher(directory):
            missing = missing_jars(locked, verify)  # again, because another fetcher may have just done it
            if missing:
                _fetch_missing(missing, directory, progress or (lambda _: None))
            return len(missing)
    except OSError as error:
        raise JarsMissing(
            f"jars cannot be kept in {directory} ({error}); KCTL_CACHE_DIR names another place"
        ) from error


def _fetch_missing(missing: list[Jar], directory: Path, progress: Callable[[str], object]) -> None:
    megabytes = sum(jar.size_bytes for jar in missing) / 1e6
    progress(f"jars: downloading {len(missing)} ({megabytes:.0f} MB)\n")
    done_bytes = 0
    with TemporaryDirectory(prefix=".fetch-", dir=directory) as temporary:
        for done, jar in enumerate(ivy.download(missing, Path(temporary)), 1):
            _keep_verified(Path(temporary, jar.file_name), jar, directory)
            done_bytes += jar.size_bytes
            if done % _LINE_EVERY_JARS == 0 or done == len(missing):
                progress(f"jars: {done} of {len(missing)}, {done_bytes / 1e6:.0f} of {megabytes:.0f} MB\n")


def _keep_verified(downloaded: Path, jar: Jar, directory: Path) -> None:
    found = sha256_of(downloaded)
    if found != jar.sha256:
        raise JarsMissing(
            f"{jar.coordinate} from {ivy.repository() or 'the default Maven repository'} is not the locked file: "
            f"expected sha256 {jar.sha256}, found {found} ({downloaded.stat().st_size} bytes); it was not kept"
        )
    downloaded.rename(directory / jar.file_name)


@contextmanager
def _only_fetcher(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
