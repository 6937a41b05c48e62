"""Real sinker processes on a file storage."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kctl.errors import KctlError
from kctl.rpc.client import call
from kctl_agent.errors import AgentError
from kctl_agent.rpc.messages import Request, Role, wire_method
from kctl_agent.storage.file import FileStorage

HANDLER = "tests.integration.sinker_handlers"
HANDLERS = Path(__file__).with_name("sinker_handlers.py")

SETTINGS: dict[str, Any] = {
    "log_level": "INFO",
    "batch_size": 500,
    "batch_wait_seconds": 0.0,
    "lease_seconds": 30.0,
    "max_tries": 3,
    "retry_backoff_seconds": 0.02,
    "handler_timeout_seconds": 30.0,
    "ordered": False,
}


def storage_settings(place: Path, **more: Any) -> dict[str, Any]:
    own = {"mode": "file", "path": str(place / "s.sqlite"), "block_messages": 500, "compression": "none", "limit": 0}
    return {**own, **more}


class SinkerProcess:
    def __init__(self, place: Path, name: str, handler: str, **settings: Any) -> None:
        self.name = name
        self.run_dir = place / "run"
        self.log = place / f"{name}.log"
        settings = {
            **SETTINGS,
            "name": name,
            "owner": f"{self.run_dir}/{name}",
            "run_dir": str(self.run_dir),
            "scratch_dir": str(place / name),
            "import_dir": str(HANDLERS.parent),
            "handler": handler if ":" in handler else f"sinker_handlers:{handler}",
            "storage": storage_settings(place),
            **settings,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "kctl_agent.sinker"], stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(settings).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, rpc: str = "workers") -> dict[str, Any] | None:
        request = Request(Role.EXTERNAL, rpc, wire_method(rpc))
        try:
            reply = call(self.run_dir / f"{self.name}.sock", request, 2.0)
        except (KctlError, AgentError):
            return None
        return reply.result if reply.ok else None

    @property
    def stats(self) -> dict[str, Any]:
        answer = self.ask() or {}
        return {**answer.get("sinker", {}), "state": answer.get("state"), "events": answer.get("events", [])}

    @property
    def last_line(self) -> str:
        return self.log.read_text().strip().splitlines()[-1]

    def leave(self, seconds: float = 20) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(seconds)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@pytest.fixture
def place(short_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KCTL_TEST_LEDGER", str(short_dir / "ledger"))
    monkeypatch.setenv("KCTL_TEST_GATE", str(short_dir / "gate"))
    os.mkfifo(short_dir / "gate")
    return short_dir


@pytest.fixture
def sinker(place: Path) -> Iterator[Callable[..., SinkerProcess]]:
    started: list[SinkerProcess] = []

    def start(handler: str, name: str = "sinker-0", **settings: Any) -> SinkerProcess:
        started.append(SinkerProcess(place, name, handler, **settings))
        return started[-1]

    yield start
    for one in started:
        one.end()


def sinkers(handler: str, **more: object) -> dict[str, object]:
    return {"count": 2, "handler": f"{HANDLER}:{handler}", "lease_seconds": 3600, "retry_backoff_seconds": 0.0, **more}


@pytest.fixture
def storage(place: Path) -> FileStorage:
    storage = FileStorage(place / "data" / "storage.sqlite", block_messages=10)
    storage.prepare()
    return storage
