"""What a catalog answers, another writer's metadata and files in the working directory cannot have kctl do."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from kctl_agent.storage.base import StorageUnusable
from kctl_agent.storage.lake.folder import TableRefused
from kctl_agent.storage.lake.iceberg.file_io import SyncedFileIO
from kctl_agent.storage.lake.iceberg.secrets import without_secrets
from tests.unit.storage.lake.iceberg.tables import Lake
from tests.unit.storage.lake.test_storage import begun

SECRET = "Kept-To-Itself"


@dataclass
class Answering:
    """A server that answers as a REST catalog without tables, or gives tokens; and what it was sent."""

    overrides: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    location: str = ""
    """Where every request is redirected to, with `status`."""
    sent: list[str] = field(default_factory=list)
    url: str = ""

    def __post_init__(self) -> None:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.sent.append(f"{self.path} {self.headers}")
                is_known = "/config" in self.path
                config = {"defaults": server.overrides, "overrides": server.overrides}
                self.answer(config if is_known else {}, server.status if is_known or server.location else 404)

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                server.sent.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                token = {"access_token": "t", "token_type": "bearer", "expires_in": 3600}
                self.answer(token, server.status if server.location else 200)

            def answer(self, document: object, status: int) -> None:
                body = json.dumps(document).encode()
                self.send_response(status)
                if server.location:
                    self.send_header("Location", f"{server.location}{self.path}?key={SECRET}")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@contextmanager
def answering(**overrides: Any) -> Iterator[Answering]:
    made = Answering(overrides)
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield made
    finally:
        made.http.shutdown()
        thread.join()
        made.http.server_close()


def changed(lake: Lake, change: Callable[[dict[str, Any]], object]) -> None:
    """Another writer's commit, which may hold anything."""
    with closing(sqlite3.connect(lake.folder / "catalog.db")) as catalog, catalog:
        [(location,)] = catalog.execute("select metadata_location from iceberg_tables").fetchall()
        old = Path(location.removeprefix("file://"))
        metadata = json.loads(old.read_text())
        change(metadata)
        new = old.with_name(f"00099-{metadata['table-uuid']}.metadata.json")
        new.write_text(json.dumps(metadata))
        catalog.execute("update iceberg_tables set metadata_location = ?", (f"file://{new}",))


def test_no_answer_of_a_rest_catalog_has_a_function_called_or_a_secret_sent_elsewhere(tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    auth = {"type": "custom", "impl": "subprocess.Popen", "custom": {"args": ["touch", str(ran)]}}
    with answering() as elsewhere, answering() as catalog:
        catalog.overrides = {
            "auth": auth, "py-io-impl": "this.x", "py-catalog-impl": "this.x", "rest.sigv4-enabled": "true",
            "oauth2-server-uri": f"{elsewhere.url}/token", "uri": elsewhere.url, "header.X-Other": "1",
            "ssl": {"cabundle": "/none"}, "prefix": "of-catalog", "kctl.folder": "/",
        }  # fmt: skip
        lake = Lake(
            tmp_path, type="rest", uri=catalog.url, credential=f"id:{SECRET}",
            **{"oauth2-server-uri": f"{catalog.url}/token"},
        )  # fmt: skip
        storage = lake.storage()
        storage.prepare()
        made = storage.table._opened()
        lake.close()

    assert not ran.exists()
    assert elsewhere.sent == []
    assert any(SECRET in each for each in catalog.sent)
    assert any("/v1/of-catalog/namespaces/sales/tables/orders" in each for each in catalog.sent)
    assert not any("X-Other" in each for each in catalog.sent)
    io = made._load_file_io({"py-io-impl": "this.x", "kctl.folder": "/"})
    assert isinstance(io, SyncedFileIO)
    assert io.properties[SyncedFileIO.FOLDER] == str(lake.path)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("secret", ["header.X-Key", "credential", "token"])
def test_no_redirect_of_a_rest_catalog_is_followed(tmp_path: Path, status: int, secret: str) -> None:
    with answering() as elsewhere, answering() as catalog:
        more = {"oauth2-server-uri": f"{catalog.url}/token"} if secret == "credential" else {}
        storage = Lake(tmp_path, type="rest", uri=catalog.url, **{secret: SECRET}, **more).storage()
        catalog.location, catalog.status = elsewhere.url.replace("127.0.0.1", "localhost"), status
        refused = (
            rf"cannot be used: .* redirects to \S+:{elsewhere.http.server_port}, which is not followed, for secrets "
            r"would go there: correct what storage\.catalog names$"
        )
        with pytest.raises(StorageUnusable, match=refused):
            storage.prepare()
        catalog.location, catalog.status = "", 200
        storage.prepare()
        catalog.location, catalog.status = elsewhere.url, status
        with pytest.raises(StorageUnusable, match=refused):
            storage.table.exists()
        storage.close()

    assert elsewhere.sent == []
    assert any(SECRET in each for each in catalog.sent)


@pytest.mark.parametrize("of_token", [False, True])
def test_a_rest_catalog_that_accepts_a_request_and_never_answers_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, of_token: bool
) -> None:
    monkeypatch.setattr("kctl_agent.storage.lake.iceberg.catalog.REQUEST_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, answering() as catalog:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        more = {"credential": SECRET, "oauth2-server-uri": f"{url}/token"} if of_token else {}
        storage = Lake(tmp_path, type="rest", uri=catalog.url if of_token else url, **more).storage()

        with pytest.raises(StorageUnusable, match=r"^the table sales.orders or its catalog cannot be .*timed out"):
            storage.prepare()
        storage.close()


def test_code_that_a_tables_metadata_name_is_not_run(lake: Lake) -> None:
    storage = lake.begun_at(100)
    ran = lake.folder / "ran"
    (lake.path / "__main__.py").write_text(f"open({str(ran)!r}, 'w')\n")
    changed(lake, lambda metadata: metadata["properties"].update({"py-io-impl": "subprocess.Popen"}))
    begun(storage, 100, 110).commit()
    batch = begun(storage, 110, 120)
    provider = {"write.py-location-provider.impl": "runpy.run_path"}
    changed(lake, lambda metadata: metadata.update(location=str(lake.path), properties=provider))

    with pytest.raises(TableRefused, match=r"sales\.orders has the property write\.py-location-provider\.impl"):
        batch.commit()
    assert not ran.exists()


def test_metadata_lead_to_no_file_outside_of_the_tables_folder(lake: Lake) -> None:
    storage = lake.begun_at(100)
    others, elsewhere = lake.folder / "others", lake.folder / "elsewhere"
    others.write_text("kept")
    (lake.path / "link").symlink_to(lake.folder)
    named = [f"file://{others}", f"{lake.path}/../others", f"{lake.path}/link/others"]

    def hostile(metadata: dict[str, Any]) -> None:
        metadata["metadata-log"] = [{"timestamp-ms": metadata["last-updated-ms"], "metadata-file": x} for x in named]
        metadata["properties"]["write.metadata.previous-versions-max"] = "1"

    changed(lake, hostile)
    begun(storage, 100, 110).commit()

    assert lake.offsets() == list(range(100, 110))
    assert others.read_text() == "kept"
    io = SyncedFileIO({SyncedFileIO.FOLDER: str(lake.path)})
    for location in named:
        for use in (io.new_input, io.new_output, io.delete):
            with pytest.raises(PermissionError, match=r"is not below .*/orders \(storage\.uri\)"):
                use(location)

    batch = begun(storage, 110, 120)
    changed(lake, lambda metadata: metadata["properties"].update({"write.metadata.path": f"file://{elsewhere}/a"}))
    with pytest.raises(TableRefused, match=r"the table sales\.orders cannot be used: .*/elsewhere/a/.* is not below"):
        batch.commit()
    assert not elsewhere.exists()


@pytest.mark.parametrize("text", ["catalog: [", "catalog:\n  default:\n    echo: maybe\n    warehouse: s3://other\n"])
def test_no_file_in_the_working_directory_or_at_home_configures_a_catalog(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / ".pyiceberg.yaml").write_text(text)
    program = (
        "import sys; from pathlib import Path; from kctl_agent.storage.lake import IcebergStorage\n"
        "from kctl_agent.storage.lake.folder import LocalFolder\n"
        f"made = IcebergStorage(LocalFolder(Path({str(tmp_path / 'orders')!r})), 'sales.orders',\n"
        f"    {{'type': 'sql', 'uri': 'sqlite:///{tmp_path}/catalog.db'}})\n"
        "made.prepare(); print({**made.table._opened().properties}); made.close()\n"
    )
    environment = {**os.environ, "HOME": str(folder), "PYICEBERG_HOME": str(folder)}
    environment |= {"PYICEBERG_CATALOG__DEFAULT__FROM_ENVIRONMENT": "yes"}
    ran = subprocess.run(
        [sys.executable, "-P", "-c", program], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )

    assert ran.returncode == 0, ran.stderr
    assert "warehouse" not in ran.stdout
    assert "'from-environment': 'yes'" in ran.stdout


def test_a_catalog_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    with answering() as catalog:
        for more in ({"ssl": "x"}, {"auth": "x"}, {"rest.sigv4-enabled": "true"}):
            with pytest.raises(StorageUnusable, match=r"the table sales\.orders or its catalog cannot be used: "):
                Lake(tmp_path, type="rest", uri=catalog.url, **more).storage().prepare()
        catalog.status = 501
        with pytest.raises(StorageUnusable, match=r"the table sales\.orders or its catalog cannot be used: "):
            Lake(tmp_path, type="rest", uri=catalog.url).storage().prepare()


@pytest.mark.parametrize(
    "catalog",
    [
        {"type": "rest", "uri": "http://127.0.0.1:1", "header.X-Key": f" {SECRET}"},
        {"type": "rest", "uri": f"http://u:{SECRET}@127.0.0.1:1/x"},
        {"type": "rest", "uri": f"http://u:{SECRET}/x@127.0.0.1:1/x"},
        {"type": "sql", "uri": f"u:{SECRET}@h/db"},
        {"type": "sql", "uri": f"none://u:{SECRET}@h/db"},
        {"type": "sql", "uri": f"sqlite://u:{SECRET}@h/db"},
        {"type": "sql", "uri": f"sqlite:////proc?password={SECRET}"},
        {"type": "sql", "uri": "sqlite:///:memory:", "echo": f"maybe-{SECRET}"},
    ],
    ids=lambda catalog: catalog["uri"],
)
def test_an_error_of_a_catalog_holds_none_of_its_secrets(tmp_path: Path, catalog: dict[str, str]) -> None:
    with pytest.raises(StorageUnusable, match=r"the table sales\.orders or its catalog cannot be used: ") as raised:
        Lake(tmp_path, **catalog).storage().prepare()

    assert SECRET.lower() not in "".join(traceback.format_exception(raised.value)).lower()


def test_words_of_an_error_stay_and_secrets_go_in_every_form() -> None:
    properties = {"type": "rest", "name": "default", "uri": "http://u:p%40ss/w@h", "token": "a b", "echo": "true"}

    text = without_secrets("rest default true: a b, a%20b, p%40ss, 'p@ss' of http://u:p%40ss/w@h", properties)

    assert text == "rest default true: ***, ***, ***, '***' of http://u:***@h"
