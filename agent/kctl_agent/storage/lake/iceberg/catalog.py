"""The catalog of a table by way of pyiceberg. What decides which code runs, where secrets are sent and where files are
comes from kctl's configuration alone: pyiceberg also takes it from what a REST catalog answers, from the metadata of a
table, which every writer of it may set, and from files in the working directory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

from pyiceberg.utils.config import Config

# `.pyiceberg.yaml` of the working directory may name code to run. It is read when pyiceberg.catalog is imported.
Config._from_configuration_files = staticmethod(lambda: None)  # type: ignore[method-assign]  # noqa: SLF001

from pyiceberg.catalog import Catalog  # noqa: E402
from pyiceberg.catalog.rest import RestCatalog  # noqa: E402
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog  # noqa: E402
from pyiceberg.exceptions import NoSuchTableError  # noqa: E402
from pyiceberg.io import FileIO  # noqa: E402
from pyiceberg.table import Table  # noqa: E402
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties  # noqa: E402
from pyiceberg.types import strtobool  # noqa: E402
from requests import PreparedRequest, Response, Session, TooManyRedirects  # noqa: E402
from sqlalchemy import inspect  # noqa: E402
from sqlalchemy.exc import SQLAlchemyError  # noqa: E402

from kctl_agent.storage.lake.folder import TableRefused  # noqa: E402
from kctl_agent.storage.lake.iceberg.file_io import SyncedFileIO  # noqa: E402

__all__ = ["OwnCatalog", "make_catalog", "settings"]

FILE_IO = f"{SyncedFileIO.__module__}.{SyncedFileIO.__qualname__}"
LOCATION_PROVIDER = "write.py-location-provider.impl"
MAKES_TABLES = "init_catalog_tables"
REQUEST_SECONDS = 30.0
"""For so long a REST catalog may leave a request without an answer."""
ATTEMPTS = 5
"""To make the tables of a SQL catalog: of processes that do so at once one is let through."""


class OwnCatalog(Catalog):
    def make_tables(self) -> None:
        """Its own, where it has such and they are missing; before a table is made."""

    def load_table(self, identifier: str | Identifier) -> Table:
        """Raises TableRefused: its metadata name code. A commit to a SQL catalog loads the table once more, by this."""
        table = super().load_table(identifier)  # type: ignore[safe-super]
        if LOCATION_PROVIDER in table.metadata.properties:
            raise TableRefused(
                f"the table {'.'.join(table.name())} has the property {LOCATION_PROVIDER}, which names code to be run, "
                "and kctl runs none that a table names: remove it from the table"
            )
        return table

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:  # noqa: ARG002
        return SyncedFileIO(self.properties)


class _OwnSqlCatalog(OwnCatalog, SqlCatalog):
    """pyiceberg makes tables of its own in the database that it is given, also where that is only to be read."""

    def __init__(self, name: str, **properties: str) -> None:
        self._makes_tables = strtobool(properties.get(MAKES_TABLES, "true"))
        super().__init__(name, **{**properties, MAKES_TABLES: "false"})

    def load_table(self, identifier: str | Identifier) -> Table:
        try:
            return super().load_table(identifier)
        except SQLAlchemyError:
            if inspect(self.engine).has_table(IcebergTables.__tablename__):
                raise
            raise NoSuchTableError("the catalog has no tables of its own yet") from None

    def make_tables(self) -> None:
        for left in reversed(range(ATTEMPTS if self._makes_tables else 0)):
            try:
                return self.create_tables()
            except SQLAlchemyError:
                if not left:
                    raise
        return None


class _OwnRestCatalog(OwnCatalog, RestCatalog):
    def _config_headers(self, session: Session) -> None:
        """Before the first request of a session, which may be the one for a token."""
        session.hooks["response"].append(_refuse_redirect)
        session.send = partial(_send, session.send)  # type: ignore[method-assign]
        super()._config_headers(session)

    def _fetch_config(self) -> None:
        """What the catalog answers would go over what is configured: the place that the secret is sent to (`uri`,
        `oauth2-server-uri`), headers, and `auth`, any function with arguments. Taken is what its paths begin with."""
        configured = dict(self.properties)
        super()._fetch_config()
        self.properties = {"prefix": self.properties.get("prefix", ""), **configured}
        self.uri = configured["uri"]


def _send(send: Callable[..., Response], request: PreparedRequest, **more: Any) -> Response:
    """pyiceberg has no time-out, nor has requests: a commit waited for a catalog that hung until it was restarted."""
    return send(request, **{**more, "timeout": more.get("timeout") or REQUEST_SECONDS})


def _refuse_redirect(response: Response, **_: Any) -> None:
    """requests keeps but `Authorization` from another server: not headers of the configuration, nor what a request for
    a token holds. Raises TooManyRedirects."""
    if response.is_redirect:
        response.close()
        to = urljoin(response.url, response.headers["location"])
        raise TooManyRedirects(
            f"{_origin(response.url)} redirects to {_origin(to)}, which is not followed, for secrets would go there: "
            "correct what storage.catalog names"
        )


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def settings(configured: Mapping[str, str]) -> dict[str, str]:
    """With those of the environment (`PYICEBERG_CATALOG__NAME__…`) for the catalog of this name."""
    environment = Config().get_catalog_config(configured.get("name", "default")) or {}
    return {**cast(dict[str, str], environment), **configured}


def make_catalog(properties: Mapping[str, str], folder: Path) -> OwnCatalog:
    """`properties` as `settings` returns them; files are below `folder` alone. An empty SQLite file is made where there
    is none. Raises what pyiceberg and its drivers raise, which is anything."""
    own = {**properties, "py-io-impl": FILE_IO, SyncedFileIO.FOLDER: str(folder)}
    name = own.pop("name", "default")
    return _OwnRestCatalog(name, **own) if own["type"] == "rest" else _OwnSqlCatalog(name, **own)
