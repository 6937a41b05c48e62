"""A table's folder in a bucket, on S3 or a compatible server.

If several `PUT` requests for one object have `If-None-Match: *`, the server must accept only one of them, even if they
are concurrent. `check` rejects other servers.
"""

from __future__ import annotations

import io
import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Self
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import S3Store

from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.lake.folder.base import FOLDER, Folder, FolderFile, check_size
from kctl_agent.storage.object_store import RETRY_SECONDS, ObjectStore

if TYPE_CHECKING:
    from obstore.store import RetryConfig

MADE = "_made"
AT_ONCE = 8
CREATES = 5
RETRIES = 1000  # more retries than fit into RETRY_SECONDS
BACKOFF_SECONDS = 0.1, 1.0
_REFUSED = re.compile(
    r"\b(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken)\b|\b40[13] \w"
)
_ROLE = re.compile(r"//169\.254\.(169\.254|170\.2)/")
"""Where AWS provides the role's keys for a machine or container: used if there are no others."""
_ANSWER = re.compile(r"<Code>([^<]*)</Code>(?:\s*<Message>([^<]*)</Message>)?")
_END = re.compile(r"(?s)\n\s*(Debug source:|0: ).*")


class S3Folder(Folder):
    def __init__(self, store: ObjectStore, path: str, client: S3Store | None = None) -> None:
        """`path` has no `/` at either end."""
        self._store = store
        self._path = path
        self._given = client
        self.uri = f"s3://{store.bucket}/{path}"
        self.options = {**store.options(), **store.client_options(), **_retries_of_delta_rs()}

    @classmethod
    def of(cls, storage: Mapping[str, Any]) -> Self:
        return cls(ObjectStore.of(storage), unquote(urlsplit(storage["uri"]).path).strip("/"))

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    @property
    def spark_uri(self) -> str:
        return f"s3a://{self._store.bucket}/{self._path}"

    def sibling(self, name: str) -> Self:
        parent = self._path.rpartition("/")[0]
        return self._made(f"{parent}/{name}" if parent else name)

    def subfolder(self, name: str) -> Self:
        return self._made(f"{self._path}/{name}")

    def _made(self, path: str) -> Self:
        return type(self)(self._store, path, self._client)

    @cached_property
    def _client(self) -> S3Store:
        if self._given is not None:
            return self._given
        return S3Store(
            self._store.bucket,
            config=self._store.options(),  # type: ignore[arg-type]
            client_options=self._store.client_options(),  # type: ignore[arg-type]
            retry_config=_retries(),
        )

    def check(self) -> None:
        """Checks that only one of nine attempts to create an object succeeds. Eight are concurrent, because some stores
        (S3Proxy 3.1, S3Mock 5.0) reject only sequential attempts."""
        probe = f"{FOLDER}/conditional-put-{uuid.uuid4().hex}"
        contents = [uuid.uuid4().bytes for _ in range(AT_ONCE + 1)]  # differ, to recognize ours after a lost reply
        try:
            with ThreadPoolExecutor(AT_ONCE) as threads:
                created = list(threads.map(self.create, [probe] * AT_ONCE, contents))
            created.append(self.create(probe, contents[-1]))
            self.remove([probe])
        except OSError as error:
            raise StorageUnusable(f"{self} (storage.uri) cannot be used: {error.strerror}") from error
        if not any(created):
            raise StorageUnusable(
                f"{self} (storage.uri) cannot be used: several writers tried to create one object, and none succeeded"
            )
        if created.count(True) > 1:
            raise TableRefused(
                f"the store of {self} (storage.uri) lets several writers create the same object, so batches could be "
                "lost: use one that supports If-None-Match"
            )

    def _created(self, key: str, content: bytes) -> bool:
        with self._errors():
            try:
                obstore.put(self._client, key, content, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
        return True

    def holds_others(self, than: Collection[str]) -> bool:
        return any(file.name.split("/")[0] not in than for file in self.files())

    def make(self) -> None:
        self.write(MADE, b"1")  # S3 has no empty folders

    def exists(self) -> bool:
        return any(True for _ in self.files())

    def names(self, after: str = "") -> list[str]:
        return [file.name for file in self._listed("", after) if "/" not in file.name]

    def open(self, name: str) -> BinaryIO:
        file = self.find(name)
        if file is None:
            raise FileNotFoundError(2, "no such object", name)
        return io.BufferedReader(_Object(self, file), buffer_size=256 << 10)

    def read_range(self, name: str, start: int, end: int) -> bytes:
        with self._errors():
            return bytes(obstore.get_range(self._client, self._key(name), start=start, end=end))

    def read_stamped(self, name: str, most_bytes: int | None = None) -> tuple[bytes, str]:
        with self._errors():
            found = obstore.get(self._client, self._key(name))
            check_size(f"{self}/{name}", found.meta["size"], most_bytes)
            return bytes(found.bytes()), self._file(found.meta).stamp

    def write(self, name: str, content: bytes) -> None:
        with self._errors():
            obstore.put(self._client, self._key(name), content, use_multipart=False)

    def create(self, name: str, content: bytes) -> bool:
        """Creates an object. If the object exists with equal content, returns True, because obstore may have repeated a
        successful request after losing the reply."""
        for _ in range(CREATES):  # a conflict (409) may end without a winner
            if self._created(self._key(name), content):
                return True
            with suppress(FileNotFoundError):
                return self.read(name) == content
        raise OSError(5, f"the store refuses {CREATES} times to make {name}, which is not there")

    def find(self, name: str) -> FolderFile | None:
        with suppress(FileNotFoundError), self._errors():
            return self._file(obstore.head(self._client, self._key(name)))
        return None

    def stamps(self, names: Collection[str]) -> dict[str, str]:
        first = min(names)
        listed = self._listed(first[: first.rfind("/") + 1], first[:-1])
        return {file.name: file.stamp for file in listed if file.name in names}

    def files(self) -> Iterator[FolderFile]:
        # S3A keeps an empty object for a folder; obstore removes the `/` at its end.
        return (file for file in self._listed() if file.size)

    def _listed(self, folder: str = "", after: str = "") -> Iterator[FolderFile]:
        offset = self._key(after) if after else None
        with self._errors():
            for found in obstore.list(self._client, self._key(folder), offset=offset):
                yield from map(self._file, found)

    def _file(self, found: Any) -> FolderFile:
        name = found["path"].removeprefix(f"{self._path}/")
        at: datetime = found["last_modified"]  # only listings of some servers have fractions of a second
        return FolderFile(name, found["size"], at.timestamp(), f"{found['e_tag']} {int(at.timestamp())}")

    def remove(self, names: Iterable[str]) -> int:
        keys = [self._key(name) for name in names]
        self._delete(keys)
        return len(keys)

    def _delete(self, keys: list[str]) -> None:
        if keys:
            with suppress(FileNotFoundError), self._errors():
                obstore.delete(self._client, keys)

    def remove_all(self) -> None:
        with suppress(OSError):
            self._delete([self._key(file.name) for file in self.files()])

    def sync(self, names: Iterable[str]) -> None:
        """Does nothing, because writes are durable once the store has acknowledged them."""

    def explain(self, error: Exception) -> str:
        text = str(error)
        answer = _ANSWER.search(text)
        code, message = (None, None) if answer is None else (" ".join((each or "").split()) for each in answer.groups())
        first = " ".join(_END.sub("", text).split())
        where = self._store.endpoint or "S3"
        if code == "NoSuchBucket":
            return f"the bucket {self._store.bucket} does not exist at {where}: create it first"
        if _ROLE.search(text):
            return (
                f"no keys for {where} were found: this machine has no role that provides them, so set "
                "storage.credentials_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if _REFUSED.search(text):
            return (
                f"{where} rejects these keys, or does not permit the request ({code or first}): see "
                "storage.credentials_file, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
            )
        if code is not None:
            return f"{where} answers {code}: {message or first}"
        if "error sending request" in text or "HTTP error" in text:
            return f"{where} does not answer"
        return first

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (NotFoundError, FileNotFoundError) as error:
            if "NoSuchBucket" in str(error):
                raise OSError(5, self.explain(error)) from error
            raise FileNotFoundError(2, "no such object", str(error).split(" not found")[0]) from error
        except BaseError as error:
            raise OSError(5, self.explain(error)) from error

    def _key(self, name: str) -> str:
        return f"{self._path}/{name}"


def _retries() -> RetryConfig:
    least, most = (timedelta(seconds=each) for each in BACKOFF_SECONDS)
    return {  # by default, obstore gives up after ten retries, within two to six seconds
        "max_retries": RETRIES,
        "retry_timeout": timedelta(seconds=RETRY_SECONDS),
        "backoff": {"init_backoff": least, "max_backoff": most, "base": 2},
    }


def _retries_of_delta_rs() -> dict[str, str]:
    least, most = BACKOFF_SECONDS
    return {
        "max_retries": str(RETRIES),
        "retry_timeout": f"{RETRY_SECONDS}s",
        "backoff_config.init_backoff": f"{least}s",
        "backoff_config.max_backoff": f"{most}s",
        "backoff_config.base": "2",
    }


class _Object(io.RawIOBase):
    def __init__(self, folder: S3Folder, file: FolderFile) -> None:
        self._folder = folder
        self._file = file
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._file.size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        end = min(self._at + len(buffer), self._file.size)
        if end <= self._at:
            return 0
        content = self._folder.read_range(self._file.name, self._at, end)
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)
