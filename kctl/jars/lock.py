"""Reads the locks, which list the required jars with size and sha256. `scripts/lock_jars` writes them."""

import hashlib
import os
import re
import stat
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Literal, get_args

from kctl.errors import JarsMissing
from kctl.ownership import check_mode, refuse_others

LockName = Literal["broker", "spark", "s3"]
LOCKS: tuple[LockName, ...] = get_args(LockName)
USUAL: tuple[LockName, ...] = ("broker", "spark")

_LINE = re.compile(
    r"(?P<group>[\w.-]+):(?P<artifact>[\w.-]+):(?P<version>[\w.-]+)(?::(?P<kind>[\w.-]+@[\w.]+))? "
    r"sha256:(?P<sha256>[0-9a-f]{64}) (?P<size>\d+)"
)


@dataclass(frozen=True, slots=True)
class Jar:
    """A file that a lock lists. `kind` is empty for an artifact's main jar, otherwise `CLASSIFIER@EXTENSION`."""

    group: str
    artifact: str
    version: str
    sha256: str
    size_bytes: int
    kind: str = ""

    @property
    def file_name(self) -> str:
        classifier, _, extension = self.kind.partition("@")
        return f"{self.artifact}-{self.version}{f'-{classifier}' if classifier else ''}.{extension or 'jar'}"

    @property
    def coordinate(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Parses a lock, with one `group:artifact:version sha256:HEX BYTES` per line. `:CLASSIFIER@EXTENSION` may follow
    the version. Lines that start with `#` are comments. Raises ValueError."""
    jars = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number} is not `group:artifact:version sha256:HEX BYTES`: {line}")
        coordinate = match["group"], match["artifact"], match["version"]
        jars.append(Jar(*coordinate, match["sha256"], int(match["size"]), match["kind"] or ""))
    return tuple(jars)


@cache
def read_lock(name: LockName) -> tuple[Jar, ...]:
    return parse_lock(files(__package__).joinpath(f"{name}.lock").read_text(encoding="utf-8"))


def jars_dir() -> Path:
    """Returns $KCTL_CACHE_DIR/jars, or $XDG_CACHE_HOME/kctl/jars, or ~/.cache/kctl/jars."""
    if own := os.environ.get("KCTL_CACHE_DIR"):
        return Path(own).absolute() / "jars"
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).absolute() / "kctl" / "jars"
    return Path.home() / ".cache" / "kctl" / "jars"


def missing_jars(jars: tuple[Jar, ...], verify: bool = False) -> list[Jar]:
    """Returns the jars that are not in the cache. Compares only sizes (1 ms for 92 jars), because each cached file has
    been verified. With `verify`, compares the sha256 too (0.1 s for 60 MB)."""
    return [jar for jar in jars if not _is_present(jars_dir() / jar.file_name, jar, verify)]


def jar_paths(lock: LockName) -> list[Path]:
    """Returns the jar paths. Raises JarsMissing. If others could replace jars, raises RunDirUnusable or ConfigError."""
    jars = read_lock(lock)
    if missing := missing_jars(jars):
        raise JarsMissing(
            f"{len(missing)} of the {len(jars)} jars of the {lock} lock are not in {jars_dir()} "
            f"(first: {missing[0].file_name}): run `kctl jars fetch{'' if lock in USUAL else f' {lock}'}`"
        )
    refuse_others(jars_dir())
    check_mode("KCTL_CACHE_DIR", jars_dir(), stat.S_IMODE(jars_dir().stat().st_mode))
    return [jars_dir() / jar.file_name for jar in jars]


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_present(path: Path, jar: Jar, verify: bool) -> bool:
    try:
        if path.stat().st_size != jar.size_bytes:
            return False
        return not verify or sha256_of(path) == jar.sha256
    except OSError:
        return False  # fetching again will report the problem
