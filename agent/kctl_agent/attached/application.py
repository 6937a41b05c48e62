"""`kctl_agent.attach`: makes somebody else's PySpark application a part of a fleet, without changing what it does.

It listens to the progress of the application's queries and answers what a worker answers, for every Kafka source. It
commits nothing, unless a shadow group is named for which no consumer lives. The listener runs on Spark's threads and
only copies: a slow one makes Spark drop events (sparkMeasure #7). Needs PySpark 3.4, and kafka-python for end offsets.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from kctl_agent.attached.brokers import EndOffsets, last_progress, servers_of
from kctl_agent.attached.queries import Queries
from kctl_agent.attached.shadow import ShadowGroup
from kctl_agent.kafka.errors import describe, is_of_kafka
from kctl_agent.rpc.commands import COMMANDS, with_describe
from kctl_agent.rpc.commands.stack_dump import STACK_DUMP
from kctl_agent.rpc.server import AgentServer
from kctl_agent.spark.callbacks import authenticate

_LOG: Final = logging.getLogger(__name__)
_EVERY_SECONDS: Final = 1.0


class Attached:
    """The handle that `attach` returns; `close` ends it, as does the end of the application."""

    def __init__(
        self, spark: Any, name: str, run_dir: str | Path, bootstrap_servers: str | None, commit_group: str | None
    ) -> None:
        self._spark = spark
        self._queries = Queries(name)
        self._servers = bootstrap_servers
        self._commit_group = commit_group
        self._brokers: EndOffsets | None = None
        self._shadow: ShadowGroup | None = None
        self._server = AgentServer(Path(run_dir), name, with_describe({**COMMANDS, "stack_dump": STACK_DUMP}))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kctl-attached {name}", daemon=True)
        self._listener: Any = None

    def start(self) -> None:
        """Serves the socket, until the application ends. Raises PathError."""
        self._server.publish(self._queries.snapshot(time.monotonic()))
        self._server.start()
        # The end of the application, by Ctrl-C too. Not by a signal handler: those are the application's. What a signal
        # or os._exit leaves behind, the master removes (`kctl.master.members`).
        atexit.register(self._server.close)
        try:
            self._listen()
        except BaseException:
            self.close()
            raise
        self._thread.start()

    def close(self) -> None:
        """Stops listening and answering; the application goes on. Idempotent."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()
        with contextlib.suppress(Exception):  # a session that has ended has no listeners any more
            self._spark.streams.removeListener(self._listener)
        self._server.close()
        atexit.unregister(self._server.close)
        for part in (self._brokers, self._shadow):
            if part is not None:
                part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _listen(self) -> None:
        from pyspark.sql.streaming import StreamingQueryListener

        queries = self._queries

        class Listener(StreamingQueryListener):  # type: ignore[misc]
            """On Spark's callback threads: copies and returns."""

            def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
                queries.started(str(event.id))

            def onQueryProgress(self, event: Any) -> None:  # noqa: N802
                queries.progressed(event.progress.json)

            def onQueryIdle(self, event: Any) -> None:  # noqa: N802
                queries.idle(str(event.id))

            def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
                queries.terminated(str(event.id), event.exception)

        with contextlib.suppress(AttributeError):  # Spark Connect has no gateway of its own
            authenticate(self._spark.sparkContext._gateway)  # noqa: SLF001
        self._listener = Listener()
        self._spark.streams.addListener(self._listener)

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_SECONDS):
            for step in (self._poll, self._commit):
                self._quietly(step)
            self._server.publish(self._queries.snapshot(time.monotonic()))

    def _quietly(self, step: Callable[[], None]) -> None:
        """Runs a step of the guest: whatever goes wrong with it is the guest's, and reported in its snapshot."""
        try:
            step()
        except Exception as error:
            text = _sentence(error, step.__name__.strip("_"), self._servers)
            if self._queries.failed(text):
                _LOG.warning("kctl: %s", text)

    def _poll(self) -> None:
        """Asks Spark for what its events leave out: the ends, and which queries run (it may drop listeners)."""
        active = {str(query.id): query for query in self._spark.streams.active}
        if self._queries.is_deaf(active):
            with contextlib.suppress(Exception):
                self._spark.streams.removeListener(self._listener)
            self._listen()
        for id_, query in active.items():
            progress = last_progress(query)
            if progress is not None:
                self._queries.progressed(progress, is_from_listener=False)
            else:
                self._queries.started(id_)
        self._queries.only(set(active))
        if self._servers is None:
            self._servers = next(filter(None, map(servers_of, active.values())), None)
        partitions = self._queries.partitions()
        if self._servers is None or not partitions:
            return
        if self._brokers is None:
            self._brokers = EndOffsets(self._servers)
        self._queries.ends(*self._brokers.bounds(partitions), at=time.monotonic())

    def _commit(self) -> None:
        if self._commit_group is None or self._servers is None:
            return
        if self._shadow is None:
            self._shadow = ShadowGroup(self._servers, self._commit_group)
        self._queries.committed(self._commit_group, self._shadow.commit(self._queries.positions()))


_FAILED: Final = {"poll": "the ends of the partitions cannot be read", "commit": "offsets cannot be committed"}


def _sentence(error: Exception, step: str, servers: str | None) -> str:
    if is_of_kafka(error):
        return describe(error, _FAILED[step], servers or "")
    return f"{step}: {(str(error) or type(error).__name__).splitlines()[0][:300]}"
