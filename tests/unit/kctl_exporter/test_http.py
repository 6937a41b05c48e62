"""The HTTP routes over a given snapshot, and the socket they are served on."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest
from fastapi import FastAPI

from kctl.errors import ConfigError, PortTaken
from kctl.http import HttpServer, bind, create_app
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.rpc.fan_out import Failed
from kctl_agent.wire import JsonObject

pytestmark = pytest.mark.anyio

ROW = {"topic": "orders", "partition": 0, "current_offset": 4, "kafka_max_offset": 10, "remaining_count": 6}
LAG: JsonObject = {"total": 6, "unknown": [], "topics": {"orders": 6}}
ROWS: JsonObject = {"rows": [{**ROW, "worker": "worker-0", "age_seconds": 0.5}]}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def snapshot() -> FleetSnapshot:
    failed = (Failed("worker-1", "timeout", "no answer"),)
    commands = {
        name: Reduced(result, ("worker-0", "worker-1"), ("worker-0",), failed, 0.5)
        for name, result in {"kafka_lag": LAG, "offset_checker": ROWS}.items()
    }
    return FleetSnapshot("main", "g", 1000.0, 0.1, commands, (), (), {}, {})


def app(latest: FleetSnapshot | None) -> FastAPI:
    return create_app(
        lambda: latest, lambda accept, _: (f"metrics for {accept}\n".encode(), "text/plain", False), lambda: 1002.0
    )


async def get(application: FastAPI, path: str, method: str = "GET") -> httpx.Response:
    transport = httpx.ASGITransport(application, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://kctl") as client:
        return await client.request(method, path, headers={"accept": "text/plain"})


async def test_lag_tells_figures_age_and_who_is_missing() -> None:
    response = await get(app(snapshot()), "/api/v1/lag")

    assert response.status_code == 200
    body = response.json()
    assert (body["total"], body["topics"], body["cluster"], body["group"]) == (6, {"orders": 6}, "main", "g")
    assert body["rows"] == [{**ROW, "worker": "worker-0", "age_seconds": 2.5}]
    assert (body["age_seconds"], body["complete"], body["answered"]) == (2.0, False, ["worker-0"])
    assert body["failed"] == [{"from": "worker-1", "code": "timeout", "message": "no answer"}]


async def test_before_the_first_collection_lag_is_not_ready_and_the_master_alive() -> None:
    lag, health = await get(app(None), "/api/v1/lag"), await get(app(None), "/healthz")

    assert lag.status_code == 503
    assert lag.json()["error"] == {
        "code": "not_ready",
        "message": "the first collection is not finished yet",
        "retriable": True,
    }
    assert (health.status_code, health.json()) == (200, {"status": "ok"})


async def test_metrics_are_rendered_for_what_the_scraper_accepts() -> None:
    response = await get(app(snapshot()), "/metrics")

    assert response.text == "metrics for text/plain\n"
    assert response.headers["content-type"].startswith("text/plain")


@pytest.mark.parametrize(
    ("path", "method", "status", "code"),
    [("/nothing", "GET", 404, "not_found"), ("/api/v1/lag", "POST", 405, "method_not_allowed")],
)
async def test_every_error_has_one_shape(path: str, method: str, status: int, code: str) -> None:
    response = await get(app(snapshot()), path, method)

    assert response.status_code == status
    assert response.json()["error"].keys() == {"code", "message", "retriable"}
    assert response.json()["error"]["code"] == code


async def test_an_unexpected_failure_tells_nothing_of_its_inside() -> None:
    application = create_app(snapshot, lambda *_: (_ for _ in ()).throw(RuntimeError("/secret/path")))

    response = await get(application, "/metrics")

    assert response.status_code == 500
    assert response.json()["error"]["code"] == "internal"
    assert "secret" not in response.text


@pytest.fixture
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        yield taken.getsockname()[1]


def test_a_taken_port_is_one_sentence(taken_port: int) -> None:
    with pytest.raises(PortTaken, match=rf"port {taken_port} on 127\.0\.0\.1 is taken: set http\.port"):
        bind("127.0.0.1", taken_port)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_only_loopback_is_served_while_there_are_no_tokens(host: str) -> None:
    with pytest.raises(ConfigError, match="loopback"):
        bind(host, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.0.0.2"])
async def test_it_serves_on_a_free_port_in_the_callers_loop_and_leaves_signals_alone(host: str) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    server = HttpServer(app(snapshot()), bind(host, 0))
    serving = asyncio.create_task(server.serve())
    try:
        async with httpx.AsyncClient() as client:
            response = await client.get(f"{server.url}/healthz")

        assert response.status_code == 200
        assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before
    finally:
        server.stop()
        await asyncio.wait_for(serving, 10)
