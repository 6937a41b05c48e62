"""A client of a schema registry with Confluent's API. Gets a schema by id or GUID, or the newest schema of a subject.

Schemas found by id or GUID never change, so the client caches them.
"""

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from kctl_agent.errors import RegistryUnusable, Undecodable
from kctl_agent.schemas.avro import self_contained
from kctl_agent.schemas.formats import RegistrySettings
from kctl_agent.schemas.framing import named, path_of
from kctl_agent.secrecy import read_private

TIMEOUT_SECONDS = 5.0
"""The time-out of each step of a request; a registry in the same network answers in milliseconds."""
RETRY_SECONDS = 1.0
"""How long an outage is assumed to last, so that waiting threads do not each wait for the time-out."""
UNKNOWN_SECONDS = 10.0
"""After the registry did not know an id, kctl does not ask for it again for this long."""
MOST_UNKNOWN = 10_000  # the most unknown ids to remember: bytes that are not framed can look like any id
MOST_BYTES = 16 << 20
MOST_REFERENCES = 200
"""The most schemas that a schema refers to, also indirectly. Each costs a request."""
UNKNOWN = (40401, 40402, 40403)
"""Confluent's codes for a missing subject, version or schema. Any other 404 counts as an outage."""


@dataclass(frozen=True, slots=True)
class Schema:
    """An Avro schema. `text` is JSON, with references inlined. `label` names the schema in errors, like `id 7`."""

    text: str
    name: str
    label: str
    version: int | None = None
    id: int | None = None


class Registry:
    """A client of one registry. Thread-safe."""

    def __init__(self, settings: RegistrySettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._clock = clock
        self._found: dict[str, Future[Any]] = {}
        self._down: tuple[float, str] | None = None  # the end of the assumed outage, and its sentence
        self._unknown: dict[str, tuple[float, str]] = {}

    def by_prefix(self, prefix: bytes) -> Schema:
        """Returns a prefix's schema. Raises Undecodable if the schema is unknown or not Avro, and RegistryUnusable."""
        path, label = path_of(prefix), named(prefix)
        found: Schema = self._once(f"avro {path}", lambda: self._schema(self._get(path), label))
        return found

    def newest(self, subject: str) -> Schema:
        """Returns the newest schema of a subject, never from the cache. Raises the errors of `by_prefix`."""
        return self._schema(self._get(f"/subjects/{quote(subject, safe='')}/versions/latest"), subject)

    def _schema(self, document: dict[str, Any], label: str) -> Schema:
        if (kind := document.get("schemaType") or "AVRO") != "AVRO":
            raise Undecodable(f"UnsupportedSchema: {label} has a schema of type {kind}, and kctl decodes only Avro")
        referenced: dict[str, str] = {}
        self._collect_referenced(document, [], referenced)
        text, name = self_contained(document["schema"], list(referenced.values()), label)
        return Schema(text, name, label, document.get("version"), document.get("id"))

    def _collect_referenced(self, document: dict[str, Any], above: list[str], texts: dict[str, str]) -> None:
        for each in document.get("references") or ():
            path = f"/subjects/{quote(each['subject'], safe='')}/versions/{each['version']}"
            if path in above:
                raise Undecodable(f"UnsupportedSchema: {path} refers to itself")
            if path in texts:
                continue
            if len(above) + len(texts) == MOST_REFERENCES:
                raise Undecodable(f"UnsupportedSchema: {path} is one of more than {MOST_REFERENCES} references")
            found = self._once(path, partial(self._get, path))
            self._collect_referenced(found, [*above, path], texts)
            texts[path] = found["schema"]  # after the schemas that it references

    def _once(self, key: str, fetch: Callable[[], Any]) -> Any:
        own = Future[Any]()
        future = self._found.setdefault(key, own)  # atomic
        if future is own:
            try:
                own.set_result(fetch())
            except BaseException as error:
                del self._found[key]  # an error is not cached
                own.set_exception(error)
        return future.result()  # other threads with this key wait here, so they share one request

    def _get(self, path: str) -> dict[str, Any]:
        until, why = self._unknown.get(path, (0.0, ""))
        if self._clock() < until:
            raise Undecodable(why)
        if self._down is not None and self._clock() < self._down[0]:
            raise RegistryUnusable(self._down[1])
        try:
            status, body = self._answer(path)
        except (OSError, HTTPException, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise self._outage(f"does not answer ({reason})") from error
        document = _json(body)
        if status == 404 and document.get("error_code") in UNKNOWN:
            why = f"UnknownSchema: the schema registry does not know {path.removeprefix('/')}"
            if len(self._unknown) >= MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[path] = self._clock() + UNKNOWN_SECONDS, why
            raise Undecodable(why)
        if status in (401, 403):
            raise self._outage(f"rejects the credentials of kctl (HTTP {status})")
        if status != 200:
            raise self._outage(f"answers {path} with HTTP {status}")
        if not isinstance(document.get("schema"), str) or not _are_references(document.get("references") or []):
            raise self._outage(f"answers {path} with something other than a schema")
        self._down = None
        return document

    def _outage(self, what: str) -> RegistryUnusable:
        sentence = f"the schema registry at {self._settings.url} {what}"
        self._down = self._clock() + RETRY_SECONDS, sentence
        return RegistryUnusable(sentence)

    def _answer(self, path: str) -> tuple[int, bytes]:
        address = urlsplit(self._settings.url)
        host, port = address.hostname or "", address.port
        connection = (
            HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=self._tls())
            if address.scheme == "https"
            else HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
        )
        try:
            connection.request("GET", address.path.rstrip("/") + path, headers=self._headers())
            answer = connection.getresponse()
            return answer.status, answer.read(MOST_BYTES)
        finally:
            connection.close()

    def _headers(self) -> dict[str, str]:
        given, accepted = self._settings, {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if given.token_file:
            return accepted | {"Authorization": f"Bearer {read_private(Path(given.token_file)).strip()}"}
        if given.basic_auth_file:
            pair = b64encode(read_private(Path(given.basic_auth_file)).strip().encode()).decode()
            return accepted | {"Authorization": f"Basic {pair}"}
        return accepted

    def _tls(self) -> ssl.SSLContext:
        given = self._settings
        context = ssl.create_default_context(cafile=given.ca_file)
        context.check_hostname = given.check_hostname
        if given.certificate_file:
            context.load_cert_chain(given.certificate_file, given.key_file, given.key_password or "")
        return context


def _are_references(found: Any) -> bool:
    return isinstance(found, list) and all(
        isinstance(each, dict) and isinstance(each.get("subject"), str) and isinstance(each.get("version"), int)
        for each in found
    )


def _json(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):  # also bytes that are not UTF-8
        return {}
    return document if isinstance(document, dict) else {}
