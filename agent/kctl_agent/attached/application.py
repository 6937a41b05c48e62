"""`kctl_agent.attach`: shows how far a PySpark application has read, without changing its behaviour.

In a fleet the agent answers as a worker does, for every Kafka source; with a shadow group it commits the offsets. It
asks Spark every second, because a listener would need a port in the application, and Spark drops events of a slow
listener (sparkMeasure #7). Needs PySpark 3.4 and kafka-python.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Self

from kctl_agent.attached.brokers import (
    NotTranslatable,
    ShadowGroup,
    elsewhere,
    last_progress,
    log_bounds,
    options_of,
    settings_of,
)
from kctl_agent.attached.queries import Queries
from kctl_agent.kafka.clients import opened
from kctl_agent.kafka.errors import describe, is_of_kafka
from kctl_agent.rpc.commands import COMMANDS, STACK_DUMP, with_describe
from kctl_agent.rpc.server import AgentServer

_LOG: Final = logging.getLogger(__name__)
_EVERY_SECONDS: Final = 1.0
_RETRY_SECONDS: Final = 5.0
_REQUEST_MS: Final = 5000


class Attached:
    """The handle that `attach` returns; `close` ends it, as does the end of the application."""

    def __init__(
        self,
        spark: Any,
        name: str,
        run_dir: Path | None,
        commit_group: str | None,
        servers: str | None,
        settings: dict[str, Any] | None,
    ) -> None:
        self._spark = spark
        self._queries = Queries(name)
        self._servers = servers
        self._settings = settings
        self._active: dict[tuple[str, str], Any] = {}
        self._options: dict[str, list[dict[str, str]]] = {}
        self._commit_group = commit_group
        self._admin: Any = None
        self._shadow: ShadowGroup | None = None
        commands = with_describe({**COMMANDS, "stack_dump": STACK_DUMP})
        self._server = None if run_dir is None else AgentServer(run_dir, name, commands)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kctl-attached {name}", daemon=True)

    def start(self) -> None:
        if self._server is not None:
            self._server.publish(self._queries.snapshot(time.monotonic()))
            self._server.start()
            # The end of the application, by Ctrl-C too. Not by a signal handler: those are the application's. What a
            # signal or os._exit leaves behind, the master removes (`kctl.master.members`).
            atexit.register(self._server.close)
        self._thread.start()

    def close(self) -> None:
        """Ends the attachment; the application continues. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._server is not None:
            self._server.close()
            atexit.unregister(self._server.close)
        if self._admin is not None:
            self._admin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        pause = _EVERY_SECONDS
        while not self._stop.wait(pause):
            well = [self._quietly(step) for step in (self._poll, self._ask, self._commit)]
            pause = _EVERY_SECONDS if all(well) else _RETRY_SECONDS
            if self._server is not None:
                self._server.publish(self._queries.snapshot(time.monotonic()))

    def _quietly(self, step: Callable[[], None]) -> bool:
        """A step's errors never reach the application."""
        try:
            step()
            return True
        except Exception as error:
            text = _sentence(error, step.__name__.strip("_"), self._settings or {})
            if self._queries.failed(text):
                _LOG.warning("kctl: %s", text)
            return False

    def _poll(self) -> None:
        # A query that restarts from its checkpoint keeps its id, but not its run id.
        active = {(str(query.id), str(query.runId)): query for query in self._spark.streams.active}
        before, self._active = self._active, active
        self._queries.keep({id_ for id_, _ in before.keys() & active.keys()})
        known, self._options = self._options, {}
        for (id_, run_id), query in active.items():
            self._queries.polled(id_, query.status["message"], last_progress(query))
            is_known = (id_, run_id) in before and id_ in known
            self._options[id_] = known[id_] if is_known else options_of(query)
        # After the others, because their batches clear the error, and because Spark may have forgotten an ended query.
        for run in before.keys() - active.keys():
            self._queries.ended(before[run].exception())
        self._choose_cluster()

    def _choose_cluster(self) -> None:
        options = next((each for found in self._options.values() for each in found), None)
        if self._settings is None and self._options:
            servers = {} if self._servers is None else {"bootstrap_servers": self._servers}
            if options or servers:
                self._settings = (settings_of(options) if options else {}) | servers
        if self._settings is None:
            return
        own = self._settings["bootstrap_servers"]
        for id_ in self._queries.leave_out(elsewhere(self._options, own)):
            text = f"query {id_} reads another Kafka cluster than {own}: its offsets are left out"
            self._queries.failed(text)
            _LOG.warning("kctl: %s", text)

    def _ask(self) -> None:
        """Only a fleet needs log starts and ends."""
        partitions = self._queries.partitions()
        if self._server is None or self._settings is None or not partitions:
            return
        self._queries.ends(*log_bounds(self._connected(self._settings), partitions), at=time.monotonic())

    def _commit(self) -> None:
        if self._commit_group is None or self._settings is None:
            return
        if self._shadow is None:
            self._shadow = ShadowGroup(self._connected(self._settings), self._commit_group)
        self._queries.committed(self._commit_group, self._shadow.commit(self._queries.positions()))

    def _connected(self, settings: dict[str, Any]) -> Any:
        from kafka.admin import KafkaAdminClient

        if self._admin is None:
            own = {"client_id": "kctl-attached", "request_timeout_ms": _REQUEST_MS}
            self._admin = opened(KafkaAdminClient, **{**own, **settings})
        return self._admin


_FAILED: Final = {"ask": "the ends of the partitions cannot be read", "commit": "offsets cannot be committed"}


def _sentence(error: Exception, step: str, settings: Mapping[str, Any]) -> str:
    if isinstance(error, NotTranslatable):
        return f"the brokers cannot be reached as the query reaches them: {error}; give attach(kafka={{…}})"
    if is_of_kafka(error):
        return describe(error, _FAILED[step], str(settings.get("bootstrap_servers", "")))
    return f"{step}: {(str(error) or type(error).__name__).splitlines()[0][:300]}"
