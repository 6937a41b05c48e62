"""A table without Spark on a real S3-compatible server passes the conformance suite; servers that lack what a table
needs are rejected.
"""

import io
import re
import socket
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from kctl_agent.storage.base import StorageUnusable, TableRefused
from kctl_agent.storage.chunk import StoredOffset
from kctl_agent.storage.kinds import open_lake
from kctl_agent.storage.lake.dead_letters.requeue import count, numbered
from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable
from kctl_agent.storage.lake.delta.files import read_files
from kctl_agent.storage.lake.delta.log import entry_name
from kctl_agent.storage.lake.folder import Folder, LocalFolder
from kctl_agent.storage.lake.folder import s3 as s3_module
from kctl_agent.storage.lake.folder.s3 import S3Folder
from kctl_agent.storage.lake.storage import LakeStorage
from tests.lake_tables import FIELDS, GROUP, TOPIC_ID, TP, at, begun, schema, written
from tests.object_store_server import BUCKET, ObjectStoreServer
from tests.proxies import UnconditionalProxy
from tests.table_conformance import OpenTable, TableDead, TableOffsets, write
from tests.table_conformance import opened as of_conformance

DEFAULTS = {"partition_by": [], "target_file_bytes": 1 << 20, "merge_schema": False}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    with ObjectStoreServer(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    with ObjectStoreServer(tmp_path_factory.mktemp("open"), keys=None) as running:
        yield running


@pytest.fixture(autouse=True)
def one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_module, "AT_ONCE", 1)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> str:
    return f"tables/{'-'.join(re.findall('[a-z0-9]+', request.node.name))}"


@pytest.fixture(params=["file", "s3"])
def folder(request: pytest.FixtureRequest, server: ObjectStoreServer, place: str, tmp_path: Path) -> Folder:
    return LocalFolder(tmp_path / "orders") if request.param == "file" else server.folder(place)


@pytest.fixture
def settings(server: ObjectStoreServer, place: str) -> dict[str, Any]:
    return server.settings(place) | DEFAULTS


def opened(settings: dict[str, Any]) -> LakeStorage:
    storage = open_lake(settings)
    assert isinstance(storage, LakeStorage)
    storage.prepare()
    storage.fit(schema(*FIELDS))
    storage.bind(GROUP)
    return storage


@pytest.fixture
def storage(settings: dict[str, Any]) -> LakeStorage:
    made = opened(settings)
    made.init_offsets([StoredOffset(*TP, TOPIC_ID, 100)])
    return made


def table_of(storage: LakeStorage) -> DeltaTable:
    return DeltaTable(storage.folder.uri, storage_options=storage.folder.options)


@pytest.mark.shows("an object store accepts one of several simultaneous commits to a table")
def test_both_kinds_of_folders_do_the_same(folder: Folder) -> None:
    folder.check()
    assert not folder.holds_others({"_kctl"})
    assert (folder.names(), list(folder.files()), folder.find("a.json"), folder.exists()) == ([], [], None, False)
    if isinstance(folder, LocalFolder):
        folder.local.mkdir()

    folder.write("_kctl/plan.json", b"1")
    folder.write("_kctl/plan.json", b"22")
    assert folder.read("_kctl/plan.json") == b"22"
    assert [(file.name, file.size) for file in folder.files()] == [("_kctl/plan.json", 2)]
    assert folder.subfolder("_kctl").names() == ["plan.json"]
    assert not folder.holds_others({"_kctl"})

    assert folder.create("a.json", b"ours")
    assert not folder.create("a.json", b"theirs")
    assert folder.read("a.json") == b"ours"
    before = folder.find("a.json")
    folder.write("a.json", b"other")
    after = folder.find("a.json")
    assert before is not None
    assert after is not None
    assert before.stamp != after.stamp
    assert folder.holds_others({"_kctl"})
    with folder.open("a.json") as file:
        assert (file.seek(-3, io.SEEK_END), file.read(2), file.tell(), file.read()) == (2, b"he", 4, b"r")
    for missing in (folder.read, folder.open):
        with pytest.raises(FileNotFoundError):
            missing("none")

    folder.remove([file.name for file in folder.files()] + ["none"])
    assert list(folder.files()) == []
    folder.remove_all()
    assert not folder.exists()


def test_of_many_that_create_the_same_file_one_does(folder: Folder) -> None:
    if isinstance(folder, LocalFolder):
        folder.local.mkdir()
    with ThreadPoolExecutor(4) as threads:
        for number in range(5):
            created = list(threads.map(lambda each: folder.create(f"{number}", b"%d" % each), range(4)))  # noqa: B023
            assert created.count(True) == 1
            assert folder.read(f"{number}") == b"%d" % created.index(True)


def test_a_commit_that_another_writer_has_overwritten_is_reported(storage: LakeStorage) -> None:
    # S3A overwrites so: it puts an entry without a condition after it has seen none.
    begun(storage, 100, 110).commit()
    version = table_of(storage).version()
    begun(storage, 110, 120).commit()
    storage.folder.write(entry_name(version), b'{"commitInfo":{"operation":"WRITE"}}\n')

    with pytest.raises(StorageUnusable, match=f"has overwritten version {version} of the table"):
        begun(storage, 120, 130)


def test_a_hundredth_commit_writes_a_checkpoint_by_a_process_that_hides_its_keys(storage: LakeStorage) -> None:
    table_of(storage).alter.set_table_properties({"delta.checkpointInterval": "2"})
    for start in range(100, 130, 10):
        begun(storage, start, start + 10).commit()
    storage.table.checkpoints.wait()

    assert [name for name in storage.folder.subfolder("_delta_log").names() if ".checkpoint." in name]
    assert at(storage) == StoredOffset(*TP, TOPIC_ID, 130, 1)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"credentials_file": "wrong"}, r"rejects these keys, .*SignatureDoesNo"),
        ({"uri": "s3://elsewhere/orders"}, "the bucket elsewhere does not exist at http://127.0.0.1:.* create it"),
        ({"endpoint": "http://127.0.0.1:1"}, "http://127.0.0.1:1 does not answer"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    server: ObjectStoreServer, settings: dict[str, Any], wrong: dict[str, str], sentence: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(s3_module, "RETRY_SECONDS", 1)
    if "credentials_file" in wrong:
        wrong = {"credentials_file": str(server.credentials("wrong"))}

    with pytest.raises(StorageUnusable, match=sentence) as caught:
        open_lake(settings | wrong).prepare()

    assert "\n" not in str(caught.value)
    assert server.keys is not None
    assert server.keys.secret not in str(caught.value)


@pytest.mark.shows("a store without `If-None-Match`, wrong keys or a missing bucket are rejected at the start")
def test_a_store_that_ignores_a_condition_is_rejected(
    open_server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_module, "AT_ONCE", 8)
    with (
        UnconditionalProxy(open_server.port) as proxy,
        pytest.raises(TableRefused, match="lets several writers create the same object, so batches could be lost"),
    ):
        open_lake(open_server.settings(endpoint=proxy.endpoint) | DEFAULTS).prepare()


def test_what_stands_for_a_folder_in_a_store_is_no_file(open_server: ObjectStoreServer) -> None:
    # S3A creates such an object for each partition, so kctl rejected every batch of a partitioned table.
    folder = open_server.folder("kctl-1")
    folder.make()
    marker = f"{open_server.endpoint}/{BUCKET}/kctl-1/topic=t/"
    urllib.request.urlopen(urllib.request.Request(marker, b"", method="PUT"), timeout=10).close()
    write(folder.subfolder("topic=t"), pa.table({"a": [1]}))

    assert [file.name for file in folder.files()] == ["_made", "topic=t/part-0.parquet"]
    assert [file.rows for file in read_files(folder, folder)] == [1]


def test_both_clients_wait_as_long(server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each client gives up by itself after ten tries, which usually take less than six seconds."""
    seconds = 8
    monkeypatch.setattr(s3_module, "RETRY_SECONDS", seconds)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
    folder = S3Folder.of(server.settings() | {"endpoint": endpoint})

    def waited(read: Callable[[], object]) -> float:
        began = time.monotonic()
        with pytest.raises(OSError):
            read()
        return time.monotonic() - began

    with ThreadPoolExecutor(2) as threads:
        obstore = threads.submit(waited, lambda: folder.read("a"))
        delta_rs = threads.submit(waited, lambda: DeltaTable(folder.uri, storage_options=folder.options))
    assert min(obstore.result(), delta_rs.result()) >= seconds


@pytest.mark.shows("a store that does not answer blocks no other thread of its worker")
def test_other_threads_go_on_while_a_store_is_waited_for(
    server: ObjectStoreServer, storage: LakeStorage, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads of this process serve the store. If a call keeps the interpreter, they get no answer through."""
    monkeypatch.setattr(s3_module, "RETRY_SECONDS", 1)
    batch = begun(storage, 100, 110)
    table = DeadLetterTable(storage, GROUP.group)
    written(table, batch, [101, 105]).commit()
    batch.discard()
    assert table.requeue_dead() == 2

    with UnconditionalProxy(server.port) as proxy:
        slow = open_lake(settings | {"endpoint": proxy.endpoint})
        slow.bind(GROUP)
        assert isinstance(slow, LakeStorage)
        assert slow.table.exists()
        assert not LakeStorage(slow.folder.sibling("none")).table.exists()
        earlier = DeadLetterTable(slow, GROUP.group).earlier_try(begun(slow, 100, 110))
        assert earlier.messages == ((*TP, 101), (*TP, 105))
        with slow.dead_letter_table().table.latest() as dead_letters:
            assert count(dead_letters, numbered(GROUP, 0, 1)) == (2, 1)


@pytest.fixture
def open_table(server: ObjectStoreServer) -> OpenTable:
    place = uuid.uuid4().hex
    return lambda: of_conformance(LakeStorage(server.folder(place)))


class TestOffsets(TableOffsets): ...


@pytest.mark.long
class TestDead(TableDead): ...
