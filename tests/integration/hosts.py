"""Hosts of one fleet, each a master with its own run_dir, workers and port."""

import json
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.certificates import make_certificate
from tests.conftest import eventually
from tests.integration.conftest import TOPIC, Master, write_config, write_secret
from tests.servers.kafka_broker import KafkaBroker
from tests.servers.kafka_cluster import KafkaCluster

MISSED_WITHIN = 8.0  # the others report a lost host missing within this time


class Fleet:
    def __init__(self, folder: Path, broker: KafkaBroker | KafkaCluster) -> None:
        self.folder, self.broker = folder, broker
        self.masters: dict[str, Master] = {}
        make_certificate(folder)
        self.token = write_secret(folder / "read-token", "a-token-that-may-only-read\n")
        self.operations_token = write_secret(folder / "operations-token", "hosts: a-token-that-may-act-too\n")
        self.started: list[Master] = []

    @property
    def masters_group(self) -> str:
        return f"{self.folder.name}.kctl-masters"

    def start(
        self,
        name: str,
        workers: int = 1,
        *,
        port: int = 0,
        prefix: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        more: Mapping[str, Mapping[str, object]] | None = None,
        **hosts: object,
    ) -> Master:
        """`hosts` are settings of `[hosts]`, `more` of other sections. `prefix` begins the master's command."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        sections: dict[str, dict[str, object]] = {
            "kafka": {"bootstrap_servers": self.broker.bootstrap_servers, "group": self.folder.name, "topics": [TOPIC]},
            "workers": {"count": workers, "engine": "own"},
            "collect": {"interval_seconds": 0.2},
            "http": {
                "port": port,
                "tls_certificate": str(self.folder / "server.pem"),
                "read_token_file": str(self.token),
                "token_file": str(self.operations_token),
            },
            "hosts": {
                "url": "https://127.0.0.1",
                "name": name,
                "ca_file": str(self.folder / "cert.pem"),
                "token_file": str(self.token),
                "operations_token_file": str(self.operations_token),
                "local_storage": True,
                **hosts,
            },
        }
        for section, settings in (more or {}).items():
            sections[section] = {**sections.get(section, {}), **settings}
        with pytest.MonkeyPatch.context() as patched:
            for variable, value in (env or {}).items():
                patched.setenv(variable, value)
            master = Master(write_config(home / "kctl.toml", sections), prefix)
        self.started.append(master)
        self.masters[name] = master
        eventually(master.is_announced, what=f"{name} is not announced")
        return master

    def states(self, name: str) -> dict[str, str]:
        rows = self.masters[name].ask("hosts", of_master=True).result["rows"]
        return {row["name"]: row["state"] for row in rows}

    def await_all(self, *names: str) -> None:
        for name in names:
            eventually(partial(self.knows, name, *names), what=f"{name} does not know all")
            eventually(partial(self.is_well, name), what=f"not all is well at {name}")

    def knows(self, name: str, *others: str) -> bool:
        return set(self.states(name)) >= set(others)

    def misses(self, name: str, other: str) -> bool:
        return self.states(name)[other] == "gone"

    def is_well(self, name: str) -> bool:
        reply = self.masters[name].ask("status", of_master=True)
        return reply.complete and {row["state"] for row in reply.result["rows"]} == {"running"}

    def pid(self, name: str) -> int:
        row, *_ = self.masters[name].ask("status", of_master=True, local=True).result["rows"]
        return int(row["pid"])

    def operate(self, at: str, operation: str, **params: Any) -> dict[str, Any]:
        master = self.masters[at]
        reply = master.ask(operation, timeout_seconds=60.0, **params)
        assert reply.error is None, reply.error
        return master.ended(reply.result)

    def refused(self, at: str, operation: str, **params: Any) -> str:
        error = self.masters[at].ask(operation, **params).error
        assert error is not None
        return error.message

    def failure(self, at: str, operation: str, **params: Any) -> str:
        ended = self.operate(at, operation, **params)
        assert ended["state"] == "failed", ended
        return str(ended["text"])

    def audit(self, name: str, state: str = "") -> list[dict[str, Any]]:
        lines = map(json.loads, (self.folder / name / "logs" / "operations.jsonl").read_text().splitlines())
        return [line for line in lines if (line["state"] == state if state else line["state"] != "running")]

    def names(self, name: str, rpc: str = "workers", **params: Any) -> list[str]:
        return [row["name"] for row in self.masters[name].ask(rpc, **params).result["rows"]]

    def get(self, at: str, path: str) -> dict[str, Any]:
        answer = self.page(at, f"api/v1/{path}")
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body

    def page(self, at: str, path: str) -> httpx.Response:
        return httpx.get(
            f"{self.masters[at].about['http_url']}/{path}",
            headers={"authorization": f"Bearer {self.token.read_text().strip()}"},
            verify=ssl.create_default_context(cafile=self.folder / "cert.pem"),
        )

    def kctl(self, at: str, *words: str) -> subprocess.CompletedProcess[str]:
        return self.masters[at].kctl(*words)

    def kill(self, name: str) -> None:
        self.masters[name].kill()

    def close(self) -> None:
        for one in self.started:
            one.kill()


@pytest.fixture
def fleet(short_dir: Path, broker: KafkaBroker) -> Iterator[Fleet]:
    with closing(Fleet(short_dir, broker)) as made:
        yield made
