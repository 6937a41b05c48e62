"""SeaweedFS, a real S3-compatible server from a wheel. Of several that were tried, this one lets a single writer win
when many create the same object at once."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from kctl.children import dies_with_parent
from kctl.demo.kafka_broker import free_ports
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.object_store import ObjectStore, StoreKeys
from tests.conftest import eventually

BUCKET = "lake"
START_SECONDS = 60.0
_KEYS = StoreKeys("kctl-test", "not-a-secret-of-anybody")
_NAMES = ("master", "volume", "filer", "s3")


class ObjectStoreServer:
    """A context manager with all files in `directory`. Without `keys`, it requires none."""

    def __init__(self, directory: Path, keys: StoreKeys | None = _KEYS) -> None:
        self.directory = directory
        self.keys = keys
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self, path: str = "orders", **more: Any) -> dict[str, Any]:
        given = {"uri": f"s3://{BUCKET}/{path}", "endpoint": self.endpoint, "region": ""}
        return given | {"credentials_file": str(self.credentials())} | more

    def folder(self, path: str = "orders", **more: Any) -> S3Folder:
        return S3Folder.of(self.settings(path, **more))

    def credentials(self, secret: str | None = None) -> Path:
        file = self.directory / ("wrong_credentials" if secret else "credentials")
        keys = self.keys or _KEYS
        part = file.with_suffix(".part")  # a process may read the file at any time
        part.write_text(f"[default]\naws_access_key_id = {keys.id}\naws_secret_access_key = {secret or keys.secret}\n")
        part.chmod(0o600)
        part.replace(file)
        return file

    def __enter__(self) -> ObjectStoreServer:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Waits until it answers. After a kill, it has its data and the same port."""
        ports = free_ports(2 * len(_NAMES) - bool(self.port))
        if not self.port:
            self.port = ports.pop()
        words = [f"-{name}.port.grpc={ports.pop()}" for name in _NAMES]
        words += [f"-{name}.port={ports.pop()}" for name in _NAMES[:-1]]
        filer = words[-1].rpartition("=")[2]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*dies_with_parent("KILL"), *self._command(), *words, f"-s3.port={self.port}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.directory,
            )
        try:
            self._until_it_answers(f"http://127.0.0.1:{filer}/buckets/{BUCKET}/")
        except BaseException:
            self.kill()
            raise

    def _command(self) -> list[str]:
        data = self.directory / "data"
        data.mkdir(exist_ok=True)
        words = {
            "dir": data,
            "ip": "127.0.0.1",
            "ip.bind": "127.0.0.1",
            "master.electionTimeout": "1s",
            "master.heartbeatInterval": "100ms",
            "master.volumeSizeLimitMB": 256,
            "volume.max": 100,
            "volume.preStopSeconds": 0,
            "filer.localSocket": self.directory / "filer.sock",
            "s3.localSocket": self.directory / "s3.sock",
            "s3.port.iceberg": 0,
            "s3.port.lance": 0,
            "s3.iam": "false",
            "s3.autoCreateBucket": "false",
            "s3.cacheCapacityMB": 16,
        }
        if self.keys is not None:
            identities = self.directory / "identities.json"
            keys = [{"accessKey": self.keys.id, "secretKey": self.keys.secret}]
            actions = ["Admin", "Read", "Write", "List", "Tagging"]
            identities.write_text(
                json.dumps({"identities": [{"name": "kctl", "credentials": keys, "actions": actions}]})
            )
            words["s3.config"] = identities
        weed = shutil.which("weed", path=str(Path(sys.executable).parent)) or "weed"
        return [
            weed,
            "-logtostderr=true",
            "server",
            "-filer",
            "-s3",
            *(f"-{name}={word}" for name, word in words.items()),
        ]

    def _until_it_answers(self, bucket: str) -> None:
        def answers() -> bool:
            try:
                _make(bucket)
                with socket.create_connection(("127.0.0.1", self.port), timeout=5):
                    pass
                self.folder("probe").write("started", b"")
                self._read_all()
            except (OSError, BaseError):
                return False
            return True

        eventually(answers, START_SECONDS, f"SeaweedFS answers; its log is {self.directory / 'log'}")

    def _read_all(self) -> None:
        """After a restart, reads report an error for some seconds, until the server has found its volumes."""
        store = ObjectStore.of(self.settings())
        client = S3Store(BUCKET, config=store.options(), client_options=store.client_options())  # type: ignore[arg-type]
        for found in obstore.list(client):
            for each in found:
                with suppress(FileNotFoundError):  # workers continue meanwhile
                    obstore.get(client, each["path"])

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _make(folder: str) -> None:
    """Creates a folder in the filer. A folder directly in `buckets` is a bucket."""
    try:
        urllib.request.urlopen(urllib.request.Request(folder, method="POST"), timeout=5).close()
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there
            raise
