"""Iceberg's own implementation in a JVM of its own: reads a table, and answers as a REST catalog by the handlers that
Iceberg has for such a server, over a JDBC catalog in a SQLite file."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from subprocess import DEVNULL
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pyspark
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from tests.iceberg_jars import iceberg_jars

__all__ = ["JavaIceberg", "java_iceberg"]

CODES = {"CommitFailedException": 409, "AlreadyExistsException": 409, "ForbiddenException": 403}
REQUESTS = "org.apache.iceberg.rest.requests"
JACKSON = "com.fasterxml.jackson"


class JavaIceberg:
    def __init__(self, gateway: JavaGateway) -> None:
        self._gateway = gateway
        self._jvm: Any = gateway.jvm
        self._iceberg: Any = gateway.jvm.org.apache.iceberg

    def rows(self, metadata_location: str, *columns: str) -> list[tuple[str, ...]]:
        """Of a table, each value as Java prints it; none of them may have a comma or a bracket."""
        file_io = self._iceberg.hadoop.HadoopFileIO(self._jvm.org.apache.hadoop.conf.Configuration())
        operations = self._iceberg.StaticTableOperations(metadata_location, file_io)
        table = self._iceberg.BaseTable(operations, "table")
        found = self._iceberg.data.IcebergGenerics.read(table).select(_strings(self._gateway, columns)).build()
        text = self._iceberg.relocated.com.google.common.collect.Iterables.toString(found)
        found.close()
        return [tuple(each.split(", ")) for each in re.findall(r"Record\(([^)]*)\)", text)]

    @contextmanager
    def rest_catalog(self, folder: Path) -> Iterator[str]:
        """Its URL."""
        mapper = self._mapper()
        catalog = self._iceberg.jdbc.JdbcCatalog()
        catalog.setConf(self._jvm.org.apache.hadoop.conf.Configuration())
        properties = {"uri": f"jdbc:sqlite:{folder}/rest.db", "warehouse": str(folder / "warehouse")}
        catalog.initialize("default", self._map(properties))
        rest = _Rest(self._gateway, catalog, mapper)
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"rest": rest}))
        server.daemon_threads = False
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            server.server_close()
            thread.join()
            catalog.close()

    def _mapper(self) -> Any:
        """As Iceberg's own `RESTObjectMapper`, which is not public."""
        jackson = self._jvm.com.fasterxml.jackson
        mapper = jackson.databind.ObjectMapper()
        mapper.setVisibility(
            jackson.annotation.PropertyAccessor.FIELD,
            self._class(f"{JACKSON}.annotation.JsonAutoDetect$Visibility", "ANY"),
        )
        mapper.setPropertyNamingStrategy(
            self._class(f"{JACKSON}.databind.PropertyNamingStrategies", "KEBAB_CASE"),
        )
        unknown = self._class(f"{JACKSON}.databind.DeserializationFeature", "FAIL_ON_UNKNOWN_PROPERTIES")
        mapper.configure(unknown, False)
        self._iceberg.rest.RESTSerializers.registerAll(mapper)
        return mapper

    def _class(self, name: str, field: str) -> Any:
        return self._jvm.java.lang.Class.forName(name).getField(field).get(None)

    def _map(self, values: dict[str, str]) -> Any:
        made = self._jvm.java.util.HashMap()
        for name, value in values.items():
            made.put(name, value)
        return made


class _Rest:
    """What a path means; None is an answer without a body."""

    def __init__(self, gateway: JavaGateway, catalog: Any, mapper: Any) -> None:
        self._gateway = gateway
        self._jvm: Any = gateway.jvm
        self._catalog = catalog
        self._mapper = mapper
        self._handlers = self._jvm.org.apache.iceberg.rest.CatalogHandlers

    def answer(self, method: str, path: str, body: str) -> str | None:
        made = self._answered(method, [unquote(part) for part in path.partition("?")[0].split("/")[2:]], body)
        return None if made is None else str(self._mapper.writeValueAsString(made))

    def _answered(self, method: str, path: list[str], body: str) -> Any:
        if path == ["config"]:
            return self._jvm.org.apache.iceberg.rest.responses.ConfigResponse.builder().build()
        if len(path) == 1:
            return self._handlers.createNamespace(self._catalog, self._read(body, "CreateNamespaceRequest"))
        namespace = self._jvm.org.apache.iceberg.catalog.Namespace.of(_strings(self._gateway, path[1].split("\x1f")))
        if len(path) == 2:
            return self._handlers.loadNamespace(self._catalog, namespace)
        if len(path) == 3:
            return self._handlers.createTable(self._catalog, namespace, self._read(body, "CreateTableRequest"))
        table = self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(namespace, path[3])
        if method == "HEAD":
            return self._handlers.tableExists(self._catalog, table)
        if method == "GET":
            return self._handlers.loadTable(self._catalog, table, self._snapshots())
        return self._handlers.updateTable(self._catalog, table, self._read(body, "UpdateTableRequest"))

    def _snapshots(self) -> Any:
        name = "org.apache.iceberg.rest.RESTCatalogProperties$SnapshotMode"
        return self._jvm.java.lang.Class.forName(name).getField("ALL").get(None)

    def _read(self, body: str, kind: str) -> Any:
        return self._mapper.readValue(body, self._jvm.java.lang.Class.forName(f"{REQUESTS}.{kind}"))

    def failed(self, error: Py4JJavaError) -> tuple[int, str]:
        kind = error.java_exception.getClass().getSimpleName()
        code = 404 if kind.startswith("NoSuch") else CODES.get(kind, 400 if "Illegal" in kind else 500)
        builder = self._jvm.org.apache.iceberg.rest.responses.ErrorResponse.builder().responseCode(code)
        made = builder.withType(kind).withMessage(error.java_exception.getMessage() or kind).build()
        return code, str(self._mapper.writeValueAsString(made))


class _Handler(BaseHTTPRequestHandler):
    rest: _Rest

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        try:
            text = self.rest.answer(self.command, self.path, body)
            code = 204 if text is None else 200
        except Py4JJavaError as error:
            code, text = self.rest.failed(error)
        data = b"" if text is None or self.command == "HEAD" else text.encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        if code != 204:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_HEAD = _answer  # noqa: N815 - so `http.server` wants it

    def log_message(self, *_: object) -> None: ...


def _strings(gateway: JavaGateway, values: Sequence[str]) -> Any:
    array = gateway.new_array(gateway.jvm.java.lang.String, len(values))
    for number, value in enumerate(values):
        array[number] = value
    return array


@contextmanager
def java_iceberg() -> Iterator[JavaIceberg]:
    """A JVM for the time of the block."""
    jars = Path(pyspark.__file__).parent / "jars"
    [py4j] = jars.glob("py4j-*.jar")
    class_path = os.pathsep.join([*map(str, iceberg_jars()), str(jars / "*")])
    launched = launch_gateway(
        jarpath=str(py4j), classpath=class_path, die_on_exit=True, return_proc=True, redirect_stderr=DEVNULL
    )
    port, process = launched
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_field=True))
    try:
        yield JavaIceberg(gateway)
    finally:
        gateway.shutdown()
        process.stdin.close()
        process.wait(30)
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
