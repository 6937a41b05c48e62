import asyncio
import itertools
import math
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from kctl.http import app
from kctl.http.access import AccessRights
from kctl.http.api.api import Api
from kctl.http.app import KeptAnswers
from kctl.http.server import BoundedProtocol, HttpServer, connection_bound
from kctl.master.snapshot import FleetSnapshot
from tests.certificates import make_certificate
from tests.conftest import eventually
from tests.fleet_snapshot import NOW, TOKEN, TOKENS, client_of, serving, snapshot, source_of
from tests.unit.kctl_http.raw_requests import Streams, answer_to, closed, connected, ending

GOOD = f"Authorization: Bearer {TOKEN}\r\n"


@dataclass
class Secured:
    server: HttpServer
    trusted: ssl.SSLContext

    async def is_alive(self) -> bool:
        async with httpx.AsyncClient(verify=self.trusted, timeout=10) as client:
            return (await client.get(f"{self.server.url}/healthz")).status_code == 200


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@asynccontextmanager
async def secured(certificate: Path) -> AsyncIterator[Secured]:
    access = AccessRights(tokens=TOKENS, certificate=certificate, key=certificate.with_name("key.pem"))
    async with serving(source_of(snapshot()), access) as server:
        yield Secured(server, ssl.create_default_context(cafile=str(certificate)))


async def until(condition: Callable[[], bool]) -> None:
    await asyncio.to_thread(eventually, condition, 10)


@asynccontextmanager
async def silent(url: str, count: int, source: str = "127.0.0.1") -> AsyncIterator[list[asyncio.StreamReader]]:
    opened: list[Streams] = []
    try:
        opened += [await connected(url, source) for _ in range(count)]
        yield [reader for reader, _ in opened]
    finally:
        await closed(*(writer for _, writer in opened))


@pytest.mark.shows("silent TLS handshakes and missing bodies do not keep a connection")
async def test_an_endless_handshake_is_counted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.http.server.MAX_CONNECTIONS", 10)
    async with secured(certificate) as here:
        async with silent(here.server.url, 40):
            await until(lambda: here.server.refusals["busy"] == 30)
            assert len(here.server.connections) == 10

        await until(lambda: not here.server.connections)
        assert await here.is_alive()
        unfinished = [await connected(here.server.url) for _ in range(5)]
        await until(lambda: len(here.server.connections) == 5)
    assert not here.server.connections, "it ends while handshakes are under way"
    await closed(*(writer for _, writer in unfinished))


async def test_an_endless_handshake_is_closed(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "handshake_seconds", 0.3)
    async with secured(certificate) as here, silent(here.server.url, 5) as readers:
        assert await asyncio.gather(*map(ending, readers)) == [b""] * 5

        await until(lambda: not here.server.connections)
        assert here.server.refusals == {"tls_handshake": 5}
        monkeypatch.setattr(BoundedProtocol, "handshake_seconds", 10.0)
        assert await here.is_alive()


GARBAGE = b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\0" * 5000, b""


async def test_no_handshake_ends_the_connection_quietly(certificate: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with secured(certificate) as here:
        writers = [(await connected(here.server.url))[1] for _ in GARBAGE]
        for writer, garbage in zip(writers, GARBAGE, strict=True):
            writer.write(garbage)
            writer.write_eof()

        await until(lambda: here.server.refusals["tls_handshake"] == len(GARBAGE))
        assert not here.server.connections
        assert await here.is_alive()
        assert [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")] == []
        await closed(*writers)


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_answered(certificate: Path) -> None:
    async with secured(certificate) as here:
        for _ in range(20):
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            client = here.trusted.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
            reader, writer = await connected(here.server.url)
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            while True:
                writer.write(outgoing.read())
                try:
                    incoming.write(await reader.read(65536))
                    client.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    pass
            client.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            writer.write(outgoing.read())  # the end of the handshake and the request in one packet
            answer = b""
            while b'{"status":"ok"}' not in answer:
                async with asyncio.timeout(10):
                    incoming.write(await reader.read(65536))
                try:
                    while piece := client.read(65536):
                        answer += piece
                except ssl.SSLWantReadError:
                    pass
            writer.close()


HEADS = (
    "GET /healthz HTTP/1.1\r\nContent-Length: 10\r\n",
    "GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n",
    "GET /api/v1/lag HTTP/1.1\r\nContent-Length: 10\r\n",
    f"POST /nothing HTTP/1.1\r\n{GOOD}Content-Length: 10\r\n",
    f"PUT /api/v1/operations HTTP/1.1\r\n{GOOD}Content-Length: 10\r\n",
    "OPTIONS /metrics HTTP/1.1\r\nContent-Length: 10\r\n",
)


async def test_a_body_that_is_still_to_come_is_not_waited_for_and_one_that_is_read_leaves_the_connection_open() -> None:
    async with serving(source_of(snapshot()), AccessRights(tokens=TOKENS)) as server:
        for head in HEADS:
            answer = await answer_to(server.url, f"{head}Host: localhost\r\n\r\n".encode() + b"2")

            assert b"\r\nconnection: close\r\n" in answer, head
            await until(lambda: not server.connections)
        async with httpx.AsyncClient(timeout=5) as client:
            for _ in range(3):
                assert "connection" not in (await client.get(f"{server.url}/healthz")).headers
            assert len(server.connections) == 1


@pytest.mark.parametrize(
    "words", [b"what is this\r\n\r\n", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", b""]
)
async def test_a_connection_closed_with_a_little_unread_is_cut(words: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundedProtocol, "unread_seconds", 0.5)
    async with serving(source_of(snapshot())) as server:
        url = httpx.URL(server.url)
        with socket.create_connection((url.host, url.port)) as unread:
            await until(lambda: len(server.connections) == 1)
            [connection] = server.connections
            assert isinstance(connection, BoundedProtocol)
            while not connection.transport.get_write_buffer_size():  # as unread answers would
                connection.transport.write(b"x" * 4096)
            unread.sendall(words)
            if not words:
                unread.shutdown(socket.SHUT_WR)
            await until(lambda: connection.transport.is_closing())

            assert connection.transport.get_write_buffer_size() < 64 * 1024
            await until(lambda: not server.connections)


@pytest.mark.parametrize(("descriptors", "bound"), [(1_048_576, 256), (1024, 256), (256, 64), (16, 8), (-1, 256)])
def test_http_takes_a_quarter_of_the_descriptors_at_most(descriptors: int, bound: int) -> None:
    assert connection_bound(descriptors) == bound


@pytest.mark.shows("one address beyond loopback holds at most half of the connections")
async def test_one_address_beyond_loopback_may_have_half_of_the_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.http.server.MAX_CONNECTIONS", 10)
    monkeypatch.setattr("kctl.http.server.is_loopback", lambda address: address == "127.0.0.1")
    async with (
        serving(source_of(snapshot())) as server,
        silent(server.url, 5, "127.0.0.2"),
        silent(server.url, 1, "127.0.0.2") as [one_more],
    ):
        refused = await ending(one_more)
        async with silent(server.url, 4), httpx.AsyncClient(timeout=10) as client:
            answered = await client.get(f"{server.url}/healthz")

    assert b"503 Busy" in refused
    assert b"5 connections of your address are open already" in refused
    assert answered.status_code == 200, "everybody else has the other half"


async def test_a_caller_that_reads_slowly_is_served_and_one_that_reads_nothing_is_cut() -> None:
    waiting, later, cut = [300_000, 200_000, 190_000], list[Any](), list[bool]()
    transport = SimpleNamespace(get_write_buffer_size=lambda: waiting.pop(0), abort=lambda: cut.append(True))
    loop = SimpleNamespace(call_later=lambda _seconds, call, *given: later.append(partial(call, *given)))
    connection: Any = SimpleNamespace(transport=transport, loop=loop, unread_seconds=30.0)
    connection._expect_reader = partial(BoundedProtocol._expect_reader, connection)

    connection._expect_reader(math.inf)
    later.pop()()
    assert not cut
    later.pop()()
    assert cut
    assert not later


class Moving:
    def __init__(self) -> None:
        self.latest: FleetSnapshot = snapshot()
        self._ticks = itertools.count()

    def clock(self) -> float:
        return NOW + next(self._ticks) / 1000  # so that no two computed answers are equal


@pytest.fixture
def moving() -> Moving:
    return Moving()


@pytest.fixture
async def client(moving: Moving) -> AsyncIterator[httpx.AsyncClient]:
    source = replace(source_of(moving.latest), latest=lambda: moving.latest, clock=moving.clock)
    async with client_of(source, path="/api/v1") as client:
        yield client


@pytest.mark.parametrize("path", ["lag?limit=2000", "status", "workers"])
async def test_what_is_asked_again_of_a_snapshot_is_the_same_answer(client: httpx.AsyncClient, path: str) -> None:
    first, second = await client.get(path), await client.get(path)

    assert first.status_code == 200
    assert (second.content, second.headers) == (first.content, first.headers)


async def test_another_question_another_snapshot_and_a_later_one_are_not_answered_from_the_cache(
    client: httpx.AsyncClient, moving: Moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    bodies = [(await client.get("lag?limit=2")).content]
    bodies.append((await client.get("lag?limit=1")).content)
    moving.latest = replace(moving.latest, sequence=8)
    bodies.append((await client.get("lag?limit=2")).content)
    monkeypatch.setattr(app, "KEPT_BYTES", 0)
    bodies += [(await client.get("status")).content for _ in range(2)]

    assert len(set(bodies)) == 5
    assert b'"sequence":8' in bodies[2]


async def test_what_a_browser_has_is_a_304_and_errors_are_not_kept(client: httpx.AsyncClient) -> None:
    tag = (await client.get("lag")).headers["etag"]

    same = await client.get("lag", headers={"if-none-match": tag})
    wrong = [await client.get("lag?limit=0") for _ in range(2)]
    older = await client.get("lag", headers={"if-none-match": 'W/"other"'})

    assert [each.status_code for each in (same, *wrong, older)] == [304, 400, 400, 200]
    assert (same.content, same.headers["etag"]) == (b"", tag)


class Slow:
    def __init__(self, *, fails: bool = False) -> None:
        self.begun, self.may_answer = asyncio.Event(), asyncio.Event()
        self.asked, self._fails = 0, fails
        self._kept = KeptAnswers(self, cast("Api", SimpleNamespace(current_tag=lambda: b"tag")))

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        self.asked += 1
        self.begun.set()
        await self.may_answer.wait()
        if self._fails:
            self._fails = False
            raise ConnectionError("a defect")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"all"})

    async def ask(self, takes: asyncio.Event | None = None) -> bytes:
        body = []

        async def send(message: Any) -> None:
            if takes is not None:
                await takes.wait()
            body.append(message.get("body", b""))

        scope = {"type": "http", "method": "GET", "path": "/api/v1/lag", "query_string": b"", "headers": []}
        await self._kept(scope, cast("Any", None), send)
        return b"".join(body)


@pytest.mark.shows("ten pages that ask for the same snapshot share one answer")
async def test_all_who_ask_at_the_same_moment_are_answered_once_though_the_first_leaves() -> None:
    slow = Slow()
    first = asyncio.create_task(slow.ask())
    await slow.begun.wait()
    others = [asyncio.create_task(slow.ask()) for _ in range(9)]
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.wait([first])
    slow.may_answer.set()

    assert [await each for each in others] == [b"all"] * 9
    assert slow.asked == 1


async def test_a_client_that_does_not_read_delays_no_others_and_after_a_failure_it_is_asked_again() -> None:
    slow, takes = Slow(), asyncio.Event()
    stalled = asyncio.create_task(slow.ask(takes))
    await slow.begun.wait()
    slow.may_answer.set()

    async with asyncio.timeout(10):
        assert await slow.ask() == b"all"
    takes.set()
    assert await stalled == b"all"

    slow = Slow(fails=True)
    slow.may_answer.set()
    with pytest.raises(ConnectionError):
        await slow.ask()
    assert await slow.ask() == b"all"
