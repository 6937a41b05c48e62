"""The demo's Kafka broker as tests start it: ports and properties of their own, and the archive of its classes.

The archive, 50 MB beside the jars' cache, has the classes as a JVM has loaded and checked them: Java's class data
sharing (JEP 350). With it a broker answers in two thirds of the time. The name of the file names which Java and which
jars it is of, so that others get one of their own; a JVM checks it, too, and goes on without one that does not fit.
`tests.record_classes` makes it.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from kctl.demo import kafka_broker
from kctl.demo.kafka_broker import two_free_ports
from kctl.errors import StartError
from kctl.jars.java import java_command
from kctl.jars.lock import jar_paths, jars_dir
from kctl_agent.archives import fingerprint, is_private, options

_PORT_ATTEMPTS = 5
_formatted: dict[str, bytes] = {}
"""The files of a data directory that was formatted, as Kafka's tool has left them."""


def archives_dir() -> Path:
    """Returns the folder where archives are kept."""
    return jars_dir().parent / "classes"


def archive_path() -> Path:
    """Returns where the archive of this Java and these jars is, or would be. Raises JarsMissing and JavaMissing."""
    return archives_dir() / f"broker-{fingerprint([java_command().resolve(), *jar_paths('broker')])}.jsa"


def archive_options() -> tuple[str, ...]:
    """Returns the Java options that use the archive; none without one that only its user can have written."""
    path = archive_path()
    return (*options(path), "-Xlog:cds*=off") if is_private(path) else ()


def kafka_command(main_class: str, *arguments: str) -> list[str]:
    """Returns the command line of a Kafka tool, which takes two thirds of the processor time with the archive."""
    return kafka_broker.kafka_command(main_class, *arguments, options=archive_options())


class KafkaBroker(kafka_broker.KafkaBroker):
    """One that chooses other ports where its own are taken meanwhile, as by another test."""

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        choose_ports: Callable[[], tuple[int, int]] = two_free_ports,
        java_options: tuple[str, ...] = (),
    ) -> None:
        """`choose_ports` gives the broker's and the controller's port. `java_options` are instead of the archive's."""
        super().__init__(directory, properties)
        self._choose_ports = choose_ports
        self._given_options = java_options

    def start(self) -> None:
        if self._ports is not None:
            super().start()
            return
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            log_start = self._log_size()
            try:
                self.launch(self._choose_ports())()
            except StartError:
                self._ports = None
                if attempt == _PORT_ATTEMPTS or "Address already in use" not in self._log_since(log_start):
                    raise
            else:
                return

    def launch(self, ports: tuple[int, int]) -> Callable[[], None]:
        self.java_options = self._given_options or archive_options()
        return super().launch(ports)

    def _format(self, properties: Path, log: int, log_start: int) -> None:
        """By the tool, a JVM, the first time. Later ones have the same files, but for the names in one of them."""
        data = self._directory / "data"
        if not _formatted or "log.dirs" in self._extra:
            super()._format(properties, log, log_start)
            _formatted.update({path.name: path.read_bytes() for path in data.glob("*") if path.is_file()})
            return
        data.mkdir()
        for name, content in _formatted.items():
            (data / name).write_bytes(content)
        names = {"version": "1", "node.id": self._extra.get("node.id", "1"), "cluster.id": self.cluster_id}
        names["directory.id"] = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        (data / "meta.properties").write_text("".join(f"{name}={text}\n" for name, text in names.items()))

    def restart(self) -> None:
        """Stops if it runs, then starts on the same ports and data (3 s more after `kill`). Raises as `start`."""
        self.stop()
        self.start()
