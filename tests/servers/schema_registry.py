"""Apicurio's schema registry, with Confluent's API and in memory, and a proxy that simulates faults."""

from __future__ import annotations

import json
import os
import shutil
import signal
import ssl
import subprocess
import sys
import tarfile
import threading
import urllib.error
import urllib.request
from collections import Counter
from contextlib import ExitStack
from functools import partial
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import mkdtemp
from typing import Any
from uuid import UUID, uuid5

from kctl.children import dies_with_parent
from kctl.demo.kafka_broker import free_ports
from kctl.jars.ivy import fetch_jars
from kctl.jars.java import java_command
from kctl.jars.lock import jars_dir, parse_lock
from tests.conftest import BRIEF_JVM, eventually
from tests.meanwhile import serving

START_SECONDS = 120.0
_API = "/apis/ccompat/v7"
_JSON = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
_GUIDS = UUID("5f0c4a1e-2f63-4d0b-9a6e-0f5d3c1b2a90")


def guid_of(number: int) -> UUID:
    return uuid5(_GUIDS, str(number))


def framed(number: int, payload: bytes, *, by_guid: bool = False) -> bytes:
    prefix = b"\1" + guid_of(number).bytes if by_guid else b"\0" + number.to_bytes(4)
    return prefix + payload


class SchemaRegistry:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        [self.port] = free_ports(1)
        self._process: subprocess.Popen[bytes] | None = None
        self._registered: list[tuple[str, bytes, int]] = []
        self.is_complete = False  # whether it answers and has each schema that was registered

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{_API}"

    def __enter__(self) -> SchemaRegistry:
        self.start()
        return self

    def start(self) -> None:
        """After `kill`, it has the same port, and the same schemas under the same ids."""
        home = _unpacked()
        java = [str(java_command()), "-Xmx300m", *BRIEF_JVM.split(), f"-Duser.home={self._folder}"]
        options = [f"-Dquarkus.http.port={self.port}", "-Dquarkus.http.host=127.0.0.1"]
        with (self._folder / "registry.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*dies_with_parent("KILL"), *java, *options, "-jar", str(next(home.glob("*-runner.jar")))],
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        eventually(self._answers, START_SECONDS)
        for subject, body, number in self._registered:
            assert self._post(subject, body) == number
        self.is_complete = True

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        self.is_complete = False
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def freeze(self, *, is_frozen: bool) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if is_frozen else signal.SIGCONT)

    def register(self, subject: str, schema: Any, *references: tuple[str, str, int], kind: str = "AVRO") -> int:
        """Returns the id. References are (name, subject, version)."""
        names = ("name", "subject", "version")
        given = {"references": [dict(zip(names, each, strict=True)) for each in references]} if references else {}
        text = schema if isinstance(schema, str) else json.dumps(schema)
        body = json.dumps({"schema": text, "schemaType": kind, **given}).encode()
        number = self._post(subject, body)
        self._registered.append((subject, body, number))
        return number

    def _post(self, subject: str, body: bytes) -> int:
        request = urllib.request.Request(f"{self.url}/subjects/{subject}/versions", body, _JSON)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(json.loads(answer.read())["id"])

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


class FaultyRegistry:
    """Forwards requests to a registry, unless `fault` is set: status and body of each answer, or None for silence.

    While the registry is killed, it closes connections, as a TCP proxy does. `asked` counts requests by path. It also
    knows schemas by GUID. With `tls`, it serves HTTPS.
    """

    def __init__(self, registry: SchemaRegistry, tls: ssl.SSLContext | None = None, port: int = 0) -> None:
        self.registry = registry
        self.fault: tuple[int, bytes] | bool | None = False
        self.asked: Counter[str] = Counter()
        self.headers: list[dict[str, str]] = []
        self.stopped = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Passing, self))
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._serving = ExitStack()

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FaultyRegistry:
        self._serving.enter_context(serving(self._server))
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._serving.close()


class _Passing(BaseHTTPRequestHandler):
    def __init__(self, proxy: FaultyRegistry, *of_request: Any) -> None:
        self._proxy = proxy
        super().__init__(*of_request)

    def do_GET(self) -> None:
        proxy = self._proxy
        proxy.asked[self.path] += 1
        proxy.headers.append(dict(self.headers))
        if proxy.fault is None:
            proxy.stopped.wait(60)
            return
        if isinstance(proxy.fault, bool) and not proxy.registry.is_complete:
            return
        try:
            status, body = self._passed() if isinstance(proxy.fault, bool) else proxy.fault
        except (OSError, HTTPException):  # the registry was killed meanwhile
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _passed(self) -> tuple[int, bytes]:
        path, of_guid = self.path, "/schemas/guids/"
        if path.startswith(of_guid):
            known = [number for number in range(1, 1000) if str(guid_of(number)) == path.removeprefix(of_guid)]
            path = f"/schemas/ids/{known[0] if known else 999_999}"
        try:
            with urllib.request.urlopen(f"{self._proxy.registry.url}{path}", timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def log_message(self, *_: Any) -> None:
        """Prints nothing."""


def _unpacked() -> Path:
    lock = parse_lock(Path(__file__).parents[1].joinpath("registry.lock").read_text(encoding="utf-8"))
    fetch_jars(lock, sys.stderr.write)
    [archive] = lock
    home = jars_dir().parent / archive.file_name.removesuffix(".tar.gz")
    if not home.exists():
        made = Path(mkdtemp(prefix=".registry-", dir=home.parent))
        with tarfile.open(jars_dir() / archive.file_name) as packed:
            packed.extractall(made, filter="data")
        try:
            os.rename(made, home)
        except OSError:  # another process was faster
            shutil.rmtree(made)
    return home


if __name__ == "__main__":
    _unpacked()
