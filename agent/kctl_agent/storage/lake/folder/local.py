"""A table's folder on this machine. Syncs files to the disk, because delta-rs and Spark do not."""

import errno
import os
import re
import shlex
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO, Self

from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.lake.folder.base import FOLDER, Folder, FolderFile, at_once, check_size
from kctl_agent.storage.limits import Free
from kctl_agent.storage.sync import sync_file

NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
"""Errors of `link(2)` where links are not supported."""
UNUSABLE = re.compile(r"[\[\]^|%\\]")  # delta-rs treats a path with these as a URL
STACK = re.compile(r"(?s)\n\s*0: .*|\x1b\[\d*m")


class LocalFolder(Folder):
    def __init__(self, path: Path, opener: Callable[[str, int], int] | None = None) -> None:
        """`opener` opens the files to read, as in the built-in `open`."""
        self.local: Path = path
        self.uri = str(path)
        self._opener = opener

    @property
    def name(self) -> str:
        return self.local.name

    @property
    def spark_uri(self) -> str:
        return f"file://{self.local}"  # Hadoop does not unescape a URI

    def sibling(self, name: str) -> Self:
        return type(self)(self.local.with_name(name), self._opener)

    def subfolder(self, name: str) -> Self:
        return type(self)(self.local / name, self._opener)

    def make(self) -> None:
        self.local.mkdir(exist_ok=True)

    def exists(self) -> bool:
        return self.local.exists()

    def check(self) -> None:
        try:
            self._check()
        except OSError as error:
            raise StorageUnusable(f"{self.local} (storage.uri) cannot be used: {error.strerror}") from error

    def _check(self) -> None:
        path, parent = self.local, self.local.parent
        if found := UNUSABLE.search(str(path)):
            raise TableRefused(
                f"{path} (storage.uri) has a `{found[0]}`, which delta-rs cannot open: name it otherwise"
            )
        if path.exists() and not path.is_dir():
            raise StorageUnusable(f"{path} (storage.uri) is not a folder: name another")
        if not parent.exists():
            raise StorageUnusable(
                f"the folder {parent} for the table of storage.uri does not exist: mkdir -p {shlex.quote(str(parent))}"
            )
        if not parent.is_dir():
            raise StorageUnusable(f"{parent}, where the table of storage.uri should be created, is not a folder")
        if os.statvfs(path if path.exists() else parent).f_blocks == 0:
            raise TableRefused(
                f"{path} (storage.uri) is in a file system that keeps no files, as /proc is: name another folder"
            )

    def check_create(self) -> None:
        place = self.local if self.local.is_dir() else self.local.parent
        with suppress(OSError), TemporaryDirectory(prefix=f"{FOLDER}-", dir=place) as made:  # a reader cannot write
            file = Path(made, "file")
            file.touch()
            try:
                os.link(file, Path(made, "link"))
            except OSError as error:
                if error.errno in NO_LINKS:
                    raise TableRefused(
                        f"the file system of {place} (storage.uri) has no hard links, but kctl commits a batch by a "
                        "hard link: use another"
                    ) from error

    def holds_others(self, than: Collection[str]) -> bool:
        if not self.local.exists():
            return False
        return not self.local.is_dir() or any(
            path.name not in than and not path.name.startswith(f"{FOLDER}-") for path in self.local.iterdir()
        )

    def names(self, after: str = "") -> list[str]:
        try:
            return [name for name in os.listdir(self.local) if name > after]
        except FileNotFoundError:
            return []

    def open(self, name: str) -> BinaryIO:
        return open(self.local / name, "rb", opener=self._opener)

    def read_stamped(self, name: str, most_bytes: int | None = None) -> tuple[bytes, str]:
        with self.open(name) as file:
            content = file.read(-1 if most_bytes is None else most_bytes + 1)  # the file may be growing
            check_size(f"{self}/{name}", len(content), most_bytes)
            return content, _stamp(os.fstat(file.fileno()))

    def create(self, name: str, content: bytes) -> bool:
        path = self.local / name
        written = path.with_name(f"_commit_{uuid.uuid4()}.json.tmp")  # delta-rs' own name for it, hidden from readers
        try:
            with written.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.link(written, path)
        except FileExistsError:
            if written.stat().st_nlink != 2:  # 2 if an NFS server made the link, but its reply was lost
                return False
        finally:
            written.unlink(missing_ok=True)
        sync_file(path.parent)
        return True

    def write(self, name: str, content: bytes) -> None:
        path = self.local / name
        written = path.with_name(f"{path.name}.{uuid.uuid4()}.new")
        try:
            path.parent.mkdir(exist_ok=True)
            with written.open("xb") as file:  # never through an existing link
                file.write(content)
            os.replace(written, path)
        except OSError:
            with suppress(OSError):
                written.unlink(missing_ok=True)
            raise

    def find(self, name: str) -> FolderFile | None:
        try:
            return self._file(name, (self.local / name).stat())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def files(self) -> Iterator[FolderFile]:
        for parent, _, names in os.walk(self.local, onerror=_raise_unless_gone):
            for each in names:
                path = Path(parent, each)
                with suppress(FileNotFoundError):  # a batch has ended meanwhile
                    yield self._file(str(path.relative_to(self.local)), path.stat())

    @staticmethod
    def _file(name: str, stat: os.stat_result) -> FolderFile:
        return FolderFile(name, stat.st_size, stat.st_mtime, _stamp(stat))

    def remove(self, names: Iterable[str]) -> int:
        count = 0
        folders: set[Path] = set()
        for name in names:
            path = self.local / name
            try:
                path.unlink()
            except FileNotFoundError:
                continue
            count += 1
            folders |= {each for each in path.parents if self.local in each.parents and each.name != FOLDER}
        for folder in sorted(folders, key=lambda each: len(each.parts), reverse=True):
            with suppress(OSError):  # not empty
                folder.rmdir()
        return count

    def remove_all(self) -> None:
        shutil.rmtree(self.local, ignore_errors=True)

    def explain(self, error: Exception) -> str:
        return " ".join(STACK.sub("", str(error)).split())

    def free(self) -> Free:
        place = self.local if self.local.exists() else self.local.parent
        try:
            disk = os.statvfs(place)
        except OSError as error:
            raise StorageUnusable(f"the disk of {place} cannot be measured: {error.strerror}") from error
        return Free.on_disk(place, disk)

    def sync(self, names: Iterable[str]) -> None:
        paths = [self.local / name for name in names]
        at_once(_sync, paths)
        parents = {self.local}
        for path in paths:
            parents |= {parent for parent in path.parents if parent == self.local or self.local in parent.parents}
        for parent in sorted(parents, key=lambda each: len(each.parts), reverse=True):
            _sync(parent)

    def sync_name(self) -> None:
        sync_file(self.local.parent)


def _sync(path: Path) -> None:
    with suppress(FileNotFoundError):
        sync_file(path)


def _raise_unless_gone(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError):  # a folder that cannot be listed may contain files
        raise error


def _stamp(stat: os.stat_result) -> str:
    return f"{stat.st_ino}-{stat.st_mtime_ns}"
