"""A table on a real S3-compatible server passes the conformance suite."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from kctl_agent.storage.lake.folder import s3
from kctl_agent.storage.lake.storage import LakeStorage
from tests.object_store_server import ObjectStoreServer
from tests.table_conformance import OpenTable, TableDead, TableOffsets, opened


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStoreServer]:
    with ObjectStoreServer(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def open_table(server: ObjectStoreServer, monkeypatch: pytest.MonkeyPatch) -> OpenTable:
    monkeypatch.setattr(
        s3, "AT_ONCE", 1
    )  # this server makes most clients that create an object at once wait for a second
    place = uuid.uuid4().hex

    return lambda: opened(LakeStorage(server.folder(place)))


class TestOffsets(TableOffsets): ...


class TestDead(TableDead): ...
