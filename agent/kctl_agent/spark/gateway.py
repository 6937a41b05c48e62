"""A worker's gateway into the engine's JVM, requested over the engine's agent socket, so that port and token appear in
no file, command line or environment that other users could read."""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kctl_agent.errors import AgentError, CommandFailed
from kctl_agent.paths import ENGINE_NAME, process_identity, socket_path
from kctl_agent.rpc.client import ask
from kctl_agent.spark.own_gateway import connected
from kctl_agent.spark.py4j_connections import guard_connections
from kctl_agent.spark.without_pandas import convert_without_pandas

_ANSWER_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Gateway:
    """A Py4J gateway on loopback for this process alone; its entry point is a Spark session."""

    port: int
    token: str = field(repr=False)
    engine_pid: int
    callback_port: int
    """Where this process listens for the JVM. The engine reserves it too, so that no other process gets it."""

    def connect(self) -> Any:
        """Returns Py4J's client. Main thread. Threads are pinned (`ClientServer`): a callback runs on its query's
        thread, in its job group and scheduler pool, and ends with it."""
        guard_connections()
        convert_without_pandas()
        return connected(self.port, self.token)


class GatewayRequest:
    """Asks for a gateway until there is one. For one thread; never waits long."""

    def __init__(self, run_dir: Path, name: str) -> None:
        self._path = socket_path(run_dir, ENGINE_NAME)
        self._name = name
        self._operation = uuid.uuid4().hex
        self._is_accepted = False

    def poll(self) -> Gateway | str:
        try:
            if not self._is_accepted:
                self._ask()
            outcome = ask(self._path, "operation", {"operation": self._operation}, _ANSWER_SECONDS)
        except CommandFailed as error:  # another engine than the one that was asked
            self._restart()
            return f"the engine rejects the request: {error}"
        except (OSError, AgentError) as error:
            return f"the engine does not answer: {error}"
        if outcome["state"] == "waiting":
            return "the engine is starting"
        self._restart()
        if outcome["state"] == "failed":
            return str(outcome["text"])
        return Gateway(**outcome["result"])

    def _ask(self) -> None:
        params = {"operation": self._operation, "name": self._name, **asdict(process_identity())}
        ask(self._path, "gateway", params, _ANSWER_SECONDS)
        self._is_accepted = True

    def _restart(self) -> None:
        self._operation, self._is_accepted = uuid.uuid4().hex, False
