import asyncio
import base64
import signal
import socket
import ssl
from contextlib import closing
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kctl.config.sections import HttpSection
from kctl.errors import ConfigError
from kctl.http import guard
from kctl.http.access import AccessRights, Token, access_of, read_tokens, shown_token
from kctl.http.app import create_app
from kctl.http.guard import Guard
from kctl.http.server import BoundedProtocol, bind
from kctl.master.operations.operation_log import OperationLog
from tests.certificates import make_certificate
from tests.conftest import eventually
from tests.fleet_snapshot import TOKEN, TOKENS, ask, client_of, healthy, serving, snapshot, source_of
from tests.unit.kctl_http.raw_requests import answer_to, closed, connected

NEW, READ = "a-new-token-0123456789", "a-read-token-0123456789"
LOCAL = AccessRights()
WITH_TOKEN = AccessRights(tokens=TOKENS)
OWN = AccessRights(others_may_read=False, tokens=TOKENS)
CLOSED = AccessRights(tokens=(*TOKENS, Token(READ, "prometheus")))
REMOTE = AccessRights(is_loopback=False, tokens=(*TOKENS, Token(NEW, may_act=True), Token(READ, "prometheus")))
READ_ONLY = AccessRights(tokens=(Token(READ),))
PROXIED = AccessRights(hosts=frozenset({"proxy.example"}))
PATHS = ("/", "/docs", "/openapi.json", "/healthz", "/readyz", "/metrics", "/api/v1/lag", "/api/v1/events", "/nothing")


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def basic(token: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"me:{token}".encode()).decode()}


GOOD, WRONG = bearer(TOKEN), bearer("wrong-wrong-wrong-wrong")


async def refusal(client: httpx.AsyncClient, path: str, method: str = "GET", **headers: str) -> str:
    response = await client.request(method, path, headers=headers)
    assert response.headers["connection"] == "close"
    assert TOKEN not in response.text
    if response.status_code == 401:
        assert "Basic" in response.headers["www-authenticate"], "a browser can ask for it"
    return f"{response.status_code} {response.json()['error']['code']}"


@pytest.mark.parametrize("access", [CLOSED, REMOTE], ids=["where there is a read token", "beyond this host"])
async def test_reading_anything_needs_a_token(access: AccessRights) -> None:
    async with client_of(snapshot(), access) as client:
        for path in PATHS:
            for header in (TOKEN, f"Token {TOKEN}", "Basic ???", WRONG["authorization"]):
                assert await refusal(client, path, authorization=header) == "401 unauthorized", path
            assert await refusal(client, path) == "401 unauthorized", path
        for path in ("/", "/metrics", "/healthz"):
            for headers in (GOOD, bearer(READ), basic(TOKEN), basic(READ)):
                assert (await client.get(path, headers=headers)).status_code == 200, path


async def test_on_loopback_who_is_not_known_to_be_the_fleets_user_needs_a_token() -> None:
    async with client_of(snapshot(), OWN) as client:  # without a connection
        for path in PATHS:
            if path in ("/healthz", "/metrics"):
                assert (await client.get(path)).status_code == 200
            elif path != "/readyz":
                assert await refusal(client, path) == "401 unauthorized", path
        for path in set(PATHS) - {"/api/v1/events", "/readyz"}:  # an answer without an end; a fleet that is not ready
            assert (await client.get(path, headers=GOOD)).status_code in (200, 404), path


@pytest.mark.shows("a missing or wrong token or another origin is rejected; beyond loopback TLS is required")
@pytest.mark.shows("the scraper's token only reads; two are valid during a rotation; the audit log names it")
@pytest.mark.parametrize(
    ("access", "headers", "expected"),
    [
        (LOCAL, {}, "403 not_allowed"),
        (WITH_TOKEN, {}, "401 unauthorized"),
        (WITH_TOKEN, WRONG, "401 unauthorized"),
        (REMOTE, basic(TOKEN), "401 unauthorized"),
        *((access, bearer(READ), "403 not_allowed") for access in (REMOTE, CLOSED, READ_ONLY)),
    ],
)
async def test_changes_need_a_token_on_loopback(access: AccessRights, headers: dict[str, str], expected: str) -> None:
    async with client_of(snapshot(), access) as client:
        for method in ("POST", "PUT", "PATCH", "DELETE", "X"):
            assert await refusal(client, "/api/v1/lag", method, **headers) == expected


async def test_while_a_token_is_rotated_the_old_and_the_new_one_are_valid_by_whatever_name() -> None:
    async with client_of(snapshot(), REMOTE) as client:
        for token in (TOKEN, NEW):
            headers = {**bearer(token), "host": "kctl.example:9750"}
            assert (await client.get("/api/v1/lag", headers=headers)).status_code == 200
            let_in = await client.post("/api/v1/lag", headers=headers)
            assert let_in.json()["error"]["code"] == "method_not_allowed", "there is no such route"


ORIGINS = "http://evil.example", "http://localhost:1", "null", "http://localhost.evil.example"


async def test_pages_of_another_origin_are_rejected_with_or_without_a_token() -> None:
    async with client_of(snapshot(), WITH_TOKEN) as client:
        for origin, method in product(ORIGINS, ("GET", "POST", "OPTIONS")):
            for headers in ({"origin": origin}, {**GOOD, "origin": origin}):
                assert await refusal(client, "/api/v1/lag", method, **headers) == "403 not_allowed"


NAMES = "localhost:9750", "127.0.0.1", "[::1]:9750", "127.0.0.2:1", "LOCALHOST", "proxy.example"


async def test_our_own_page_and_names_are_let_in_and_answers_forbid_a_browser_what_it_might_do() -> None:
    async with client_of(snapshot(), PROXIED) as client:
        assert [(await client.get("/api/v1/lag", headers={"host": each})).status_code for each in NAMES] == [200] * 6
        ours = await client.get("/api/v1/lag", headers={"origin": "http://localhost"})
        missing = await client.get("/nothing")

    assert not any(name.startswith("access-control") for name in ours.headers)
    assert (ours.status_code, missing.status_code) == (200, 404)
    for response in (ours, missing):
        assert response.headers["x-content-type-options"] == "nosniff"
        [policy] = response.headers.get_list("content-security-policy")
        assert "default-src 'none'" in policy


async def test_a_body_and_headers_that_are_too_large_are_rejected_before_they_are_read() -> None:
    large = {**GOOD, "content-length": str(64 * 1024 + 1)}
    async with client_of(snapshot(), WITH_TOKEN) as client:
        assert await refusal(client, "/api/v1/lag", "POST", **large) == "413 body_too_large"
        assert await refusal(client, "/api/v1/lag", x="y" * 20_000) == "431 headers_too_large"
        assert await refusal(client, f"/api/v1/lag?topic={'y' * 20_000}") == "431 headers_too_large"


@pytest.mark.shows("wrong tokens are logged, and lock no client out")
async def test_a_right_token_is_accepted_after_any_number_of_wrong_ones(caplog: pytest.LogCaptureFixture) -> None:
    guarded = Guard(create_app(source_of(snapshot())).guarded._app, REMOTE)
    transport = httpx.ASGITransport(guarded, client=("192.0.2.2", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        wrong = [await client.get("/metrics", headers=WRONG) for _ in range(9)]
        right = await client.get("/metrics", headers=GOOD)

    assert [each.status_code for each in wrong] == [401] * 9
    assert right.status_code == 200
    assert [each.getMessage() for each in caplog.records if "wrong_token" in each.getMessage()] == [
        f"action=wrong_token source=192.0.2.2 count={count}" for count in (1, 2, 4, 8)
    ]


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kctl.http.server.MAX_CONNECTIONS", 10)
    monkeypatch.setattr(BoundedProtocol, "request_seconds", 0.3)
    monkeypatch.setattr(BoundedProtocol, "unread_seconds", 0.5)


async def is_alive(url: str) -> bool:
    async with httpx.AsyncClient(timeout=5) as client:
        return (await client.get(f"{url}/healthz")).status_code == 200


POINTLESS = {
    b"GET /healthz HT": b"408 request_too_slow",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ": b"408 request_too_slow",
    b"": b"408 request_too_slow",
    b"\x16\x03\x01 what is this\r\n\r\n": b"400 bad_request",
    b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 100_000: b"431 headers_too_large",
    b"POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\n": b"403 not_allowed",
}
WEBSOCKET = b"GET /x HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.usefixtures("bounds")
async def test_a_caller_that_never_comes_to_the_point_is_closed() -> None:
    async with serving(source_of(snapshot())) as server:
        answers = await asyncio.gather(*(answer_to(server.url, data) for data in POINTLESS))

        for answer, (status, code) in zip(answers, map(bytes.split, POINTLESS.values()), strict=True):
            assert answer.startswith(b"HTTP/1.1 " + status), answer
            assert b'{"error":' in answer
            assert code in answer
        assert await is_alive(server.url)
        reader, writer = await connected(server.url)
        writer.write(WEBSOCKET)
        async with asyncio.timeout(5):
            assert (await reader.readline()).startswith(b"HTTP/1.1 404")
        await closed(writer)


@pytest.mark.usefixtures("bounds")
async def test_a_caller_that_does_not_read_its_answer_is_let_go() -> None:
    async def huge(*_: str) -> tuple[bytes, str, bool]:
        return b"x" * 50_000_000, "text/plain", False

    async with serving(source_of(snapshot(), metrics=huge)) as server:
        host, port = server.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as unread:
            unread.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await asyncio.to_thread(eventually, lambda: len(server.connections) == 1, 5)
            await asyncio.to_thread(eventually, lambda: len(server.connections) == 0, 5)
        assert await is_alive(server.url)


async def test_a_body_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.1)
    monkeypatch.setattr(guard, "BODY_BYTES", 100)
    lines = ("POST /api/v1/operations HTTP/1.1", "Host: localhost", f"Authorization: Bearer {TOKEN}")
    types = ("Content-Type: application/json", "Transfer-Encoding: chunked", "", "")
    operations = OperationLog({}, cast("Any", None), None)
    async with serving(source_of(snapshot(), operations=operations), WITH_TOKEN) as server:
        for body, status in ((b"", b"408"), (2 * (b"3c\r\n" + b"x" * 60 + b"\r\n"), b"413")):
            answer = await answer_to(server.url, "\r\n".join((*lines, *types)).encode() + body)
            assert answer.startswith(b"HTTP/1.1 " + status)


def test_answers_do_not_wait_for_the_caller_s_acknowledgement() -> None:
    with closing(bind("127.0.0.1", 0)) as sock:
        assert sock.proto == socket.IPPROTO_TCP, "asyncio sets TCP_NODELAY only then"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
async def test_it_serves_on_a_free_port_in_the_callers_loop_and_leaves_signals_alone(host: str) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    async with serving(source_of(snapshot()), host=host) as server:
        assert await is_alive(server.url)
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


async def test_on_loopback_the_fleets_user_needs_no_token(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    access = access_of(HttpSection(tls_certificate="cert.pem", tls_key="key.pem"), tmp_path)
    trusted = ssl.create_default_context(cafile=str(certificate))
    for each, host in ((access, "127.0.0.1"), (OWN, "127.0.0.1"), (OWN, "::1")):
        async with serving(source_of(snapshot()), each, host) as server, httpx.AsyncClient(verify=trusted) as client:
            assert (await client.get(f"{server.url}/api/v1/workers")).status_code == 200


async def test_who_is_not_known_to_be_the_fleets_user_learns_no_reason_from_readyz() -> None:
    for latest, status in ((snapshot(), 503), (healthy(), 200)):
        reason = latest.verdict.main.reason
        known, other = [await ask(latest, "/readyz", access=each) for each in (AccessRights(), OWN)]
        assert (known.status_code, other.status_code) == (status, status)
        assert reason in known.text
        assert reason not in other.text


async def test_a_defect_is_answered_with_500_and_logged_without_what_came_in(caplog: pytest.LogCaptureFixture) -> None:
    written = "by a stranger"

    async def broken(_scope: Any, _receive: Any, _send: Any) -> None:
        raise RuntimeError(written)

    transport = httpx.ASGITransport(Guard(broken, AccessRights()), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        response = await client.get("/api/v1/lag")

    assert (response.status_code, response.headers["connection"]) == (500, "close")
    assert written not in response.text
    [record] = [each for each in caplog.records if each.name == "kctl.http.guard"]
    assert "error=RuntimeError" in record.getMessage()
    assert written not in record.getMessage()


OLD = "an-old-token-0123456789"
FILES = {
    "token": f"{TOKEN}\n",
    "read": f"prometheus: {READ}\n",
    "short": "secret\n",
    "twice": f"{OLD}\n{OLD}",
    "named": f"a: {OLD}",
    "named-read": f"a: {READ}",
    "open": TOKEN,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(text)
    (tmp_path / "open").chmod(0o644)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        (OLD, [(OLD, "")]),
        (f"\n# rotated\n  {OLD}  \r\n\n{NEW}\n", [(OLD, ""), (NEW, "")]),
        (f"ops: {OLD}\nci.2:{NEW}\n", [(OLD, "ops"), (NEW, "ci.2")]),
        (f"ops = {OLD}\nci\t=\t{NEW}\n", [(OLD, "ops"), (NEW, "ci")]),
        ("c2l4dGVlbi1ieXRlcyE=\nc2l4dGVlbi1ieXRlcw==\n", [("c2l4dGVlbi1ieXRlcyE=", ""), ("c2l4dGVlbi1ieXRlcw==", "")]),
        ("ops = c2l4dGVlbi1ieXRlcw==", [("c2l4dGVlbi1ieXRlcw==", "ops")]),
    ],
)
def test_a_token_file_has_names(folder: Path, text: str, tokens: list[tuple[str, str]]) -> None:
    (folder / "token").write_text(text)

    found = read_tokens(folder / "token", "http.token_file", may_act=True)

    assert [(token.secret, token.name) for token in found] == tokens


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "contains no token"),
        ("# nothing\n\n", "contains no token"),
        (f"{OLD}\n{NEW}\n{READ}\n", "contains 3 tokens: at most 2"),
        ("too-short-secret\nshort-secret", "line 2, must contain one word of at least 16"),
        (f"two words {OLD}", "line 1, must contain"),
        ("ops: short-secret", "line 1, must contain"),
        ("ops = ", "must contain"),
    ],
)
def test_an_unusable_token_file_is_not_quoted(folder: Path, text: str, sentence: str) -> None:
    (folder / "token").write_text(text)

    with pytest.raises(ConfigError, match=r"http\.token_file") as raised:
        read_tokens(folder / "token", "http.token_file", may_act=True)

    assert sentence in str(raised.value)
    assert "secret" not in str(raised.value)
    assert OLD not in str(raised.value)


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"host": "0.0.0.0"}, "loopback address, so others can reach it: set http.token_file"),
        ({"host": "::"}, "set http.token_file"),
        ({"host": "10.0.0.1", "token_file": "token"}, "set http.tls_certificate, or http.insecure"),
        ({"host": "example.org"}, "no IP address"),
        ({"token_file": "nothing"}, "cannot be read"),
        ({"token_file": "open"}, "every user of this machine may open it"),
        ({"read_token_file": "open"}, "every user of this machine may open it"),
        ({"tls_certificate": "token", "tls_key": "open"}, "every user of this machine may open it"),
        ({"token_file": "short"}, "at least 16 characters"),
        ({"read_token_file": "nothing"}, "http.read_token_file"),
        ({"host": "0.0.0.0", "read_token_file": "short"}, "at least 16 characters"),
        ({"tls_certificate": "nothing"}, "cannot be used"),
        ({"tls_key": "token"}, "http.tls_certificate is not"),
        ({"token_file": "token", "read_token_file": "token"}, "the same token"),
        ({"token_file": "twice", "read_token_file": "read"}, "the same token"),
        ({"token_file": "named", "read_token_file": "named-read"}, "same name"),
    ],
)
def test_open_servers_and_ambiguous_tokens_are_rejected(folder: Path, more: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        access_of(replace(HttpSection(), **more), folder)

    assert sentence in str(raised.value)
    assert "secret" not in str(raised.value)


def test_what_is_configured_well_is_used(folder: Path) -> None:
    open_to_others = HttpSection(host="0.0.0.0", insecure=True, allowed_hosts=("Proxy.example",))
    acting = access_of(replace(open_to_others, token_file="token"), folder)
    reading = access_of(replace(open_to_others, read_token_file="read"), folder)

    assert access_of(HttpSection(), folder) == AccessRights(others_may_read=False)
    assert acting == AccessRights(False, False, TOKENS, frozenset({"proxy.example"}))
    assert (reading.tokens, reading.may_act, READ in repr(reading)) == ((Token(READ, "prometheus"),), False, False)


@given(st.text(max_size=60))
def test_whatever_is_shown_only_a_whole_token_is_one(given_text: str) -> None:
    found = shown_token(given_text, (Token(OLD), Token(READ)))

    assert (found.secret if found else None) == (given_text if given_text in (OLD, READ) else None)
