"""Downloads jars with the Apache Ivy of PySpark's wheel.

To replace Maven Central, KCTL_MAVEN_REPOSITORY may name a URL or a folder in Maven's layout. Ivy does not resolve
dependencies or check checksums: the lock lists every jar, and kctl checks the sha256.
"""

import fcntl
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.sax.saxutils import quoteattr

from kctl.errors import JarsMissing
from kctl.jars.java import java_command
from kctl.jars.lock import USUAL, Jar, LockName, jars_dir, missing_jars, read_lock, sha256_of

_LINE_EVERY_JARS = 20


def fetch(
    locks: Iterable[LockName] = USUAL, progress: Callable[[str], object] | None = None, *, verify: bool = False
) -> int:
    return fetch_jars((jar for name in locks for jar in read_lock(name)), progress, verify=verify)


def fetch_jars(jars: Iterable[Jar], progress: Callable[[str], object] | None = None, *, verify: bool = False) -> int:
    """Fetches missing jars into the cache, and returns how many it downloaded. Only one process fetches at a time.
    kctl verifies a jar's sha256 before it renames the file into place, so every cached file is complete.

    If no jar is missing, this costs one stat per jar and does not start Java. With `verify`, kctl also reads existing
    jars, and downloads jars with a wrong sha256 again. Raises JavaMissing or JarsMissing, but keeps verified jars.
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
            f"jars cannot be stored in {directory} ({error}); set KCTL_CACHE_DIR to another folder"
        ) from error


def _fetch_missing(missing: list[Jar], directory: Path, progress: Callable[[str], object]) -> None:
    megabytes = sum(jar.size_bytes for jar in missing) / 1e6
    progress(f"jars: downloading {len(missing)} ({megabytes:.0f} MB)\n")
    done_bytes = 0
    with TemporaryDirectory(prefix=".fetch-", dir=directory) as temporary:
        for done, jar in enumerate(download(missing, Path(temporary)), 1):
            _keep_verified(Path(temporary, jar.file_name), jar, directory)
            done_bytes += jar.size_bytes
            if done % _LINE_EVERY_JARS == 0 or done == len(missing):
                progress(f"jars: {done} of {len(missing)}, {done_bytes / 1e6:.0f} of {megabytes:.0f} MB\n")


def _keep_verified(downloaded: Path, jar: Jar, directory: Path) -> None:
    found = sha256_of(downloaded)
    if found != jar.sha256:
        raise JarsMissing(
            f"{jar.coordinate} from {repository() or 'the default Maven repository'} is not the locked file: expected "
            f"sha256 {jar.sha256}, found {found} ({downloaded.stat().st_size} bytes); kctl did not keep it"
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


_DOWNLOADED = re.compile(r"\t\[SUCCESSFUL \] (\S+)#(\S+);(\S+)!")
_REASONS = (  # the best first: Ivy prints "not found" for every jar of a server that it cannot reach
    re.compile(r"\s*(Server access error at url .*|Host \S+ not found\.)"),
    re.compile(r"\s*:: (\S+#\S+;\S+: .*)"),
    re.compile(r"\s*(.*\[FAILED +\].*)"),
)
_SETTINGS = """<ivysettings>
<settings defaultResolver="central" defaultConflictManager="all"/>
<caches defaultCacheDir={directory} artifactPattern="[artifact]-[revision](-[classifier]).[ext]"/>
<timeout-constraints>
<timeout-constraint name="patient" connectionTimeout="20000" readTimeout="60000"/>
</timeout-constraints>
<resolvers><ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false" checksums=""
 timeoutConstraint="patient"{root}/></resolvers>
</ivysettings>
"""


def repository() -> str | None:
    """Returns KCTL_MAVEN_REPOSITORY as a URL, or None for Ivy's default."""
    configured = os.environ.get("KCTL_MAVEN_REPOSITORY")
    if configured and "://" not in configured and not configured.startswith("file:"):
        return Path(configured).expanduser().absolute().as_uri()
    return configured or None


def download(jars: Sequence[Jar], directory: Path) -> Iterator[Jar]:
    """Downloads jars, and yields each jar when its file is complete. Closing the iterator stops the download. Raises
    JavaMissing, or JarsMissing with Ivy's reason."""
    by_coordinate = {jar.coordinate: jar for jar in jars}
    output: list[str] = []
    with subprocess.Popen(
        _ivy_command(jars, directory), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as ivy:
        assert ivy.stdout is not None
        try:
            for line in ivy.stdout:
                output.append(line)
                if match := _DOWNLOADED.match(line):
                    yield by_coordinate.pop(":".join(match.groups()))
        finally:
            if ivy.poll() is None and by_coordinate:
                ivy.kill()
    if by_coordinate:
        first = next(iter(by_coordinate))
        raise JarsMissing(
            f"{len(by_coordinate)} of {len(jars)} jars could not be downloaded from "
            f"{repository() or 'the default Maven repository'} (first: {first}): {_reason(output)}; "
            "to use a mirror, set KCTL_MAVEN_REPOSITORY"
        )


def _ivy_command(jars: Sequence[Jar], directory: Path) -> list[str]:
    root = repository()
    settings = directory / "settings.xml"
    settings.write_text(
        _SETTINGS.format(directory=quoteattr(str(directory)), root=f" root={quoteattr(root)}" if root else "")
    )
    ivy_file = directory / "ivy.xml"
    ivy_file.write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="kctl" module="jars"/><dependencies>\n'
        + "".join(
            f'<dependency org="{jar.group}" name="{jar.artifact}" rev="{jar.version}" transitive="false">'
            f"{_artifact(jar)}</dependency>\n"
            for jar in jars
        )
        + "</dependencies></ivy-module>\n"
    )
    return [str(java_command()), "-jar", str(_ivy_jar()), "-settings", str(settings), "-ivy", str(ivy_file)]


def _artifact(jar: Jar) -> str:
    classifier, _, extension = jar.kind.partition("@")
    name = f'name="{jar.artifact}" type="{extension}" ext="{extension}" m:classifier="{classifier}"'
    return f"<artifact {name}/>" if jar.kind else ""


def require_pyspark() -> list[str]:
    """Returns PySpark's folders without importing PySpark. Raises JarsMissing."""
    spec = find_spec("pyspark")
    if spec is None:
        raise JarsMissing("PySpark is not installed in this environment: pip install 'kctl[spark]'")
    return list(spec.submodule_search_locations or ())


def _ivy_jar() -> Path:
    for folder in require_pyspark():
        for jar in sorted(Path(folder, "jars").glob("ivy-*.jar")):
            return jar
    raise JarsMissing("the PySpark of this environment lacks Ivy, which downloads the jars: install it again")


def _reason(output: Sequence[str]) -> str:
    for reason in _REASONS:
        for line in output:
            if match := reason.match(line):
                return match[1].strip()
    return output[-1].strip() if output else "no output"
