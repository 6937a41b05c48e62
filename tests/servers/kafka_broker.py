"""The demo's Kafka broker as tests start it, with its own ports, properties and archive of classes.

The archive (50 MB, next to the jars' cache) has loaded and verified classes: Java's class data sharing (JEP 350). With
it a broker answers in two thirds of the time. Its file name identifies Java and jars, so each combination has its own;
a JVM checks the archive, too, and runs without one that does not fit. `tests.record_classes` makes it.
"""

import base64
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kctl.demo import kafka_broker
from kctl.demo.kafka_broker import two_free_ports
from kctl.errors import StartError
from kctl.jars.java import java_command
from kctl.jars.lock import jar_paths, jars_dir
from kctl_agent.spark.class_archive import fingerprint, is_private, options

_PORT_ATTEMPTS = 5
_formatted: dict[str, bytes] = {}  # the files that Kafka's tool left in a formatted data directory


def archives_dir() -> Path:
    return jars_dir().parent / "classes"


def archive_path() -> Path:
    return archives_dir() / f"broker-{fingerprint([java_command().resolve(), *jar_paths('broker')])}.jsa"


def archive_options() -> tuple[str, ...]:
    """Returns no options unless only this user can have written the archive."""
    path = archive_path()
    return (*options(path), "-Xlog:cds*=off") if is_private(path) else ()


def kafka_command(main_class: str, *arguments: str) -> list[str]:
    """With the archive, a tool takes two thirds of the processor time."""
    return kafka_broker.kafka_command(main_class, *arguments, options=archive_options())


class KafkaBroker(kafka_broker.KafkaBroker):
    """Chooses other ports if something, such as another test, has taken its own."""

    def __init__(
        self,
        directory: Path,
        properties: Mapping[str, str] | None = None,
        *,
        choose_ports: Callable[[], tuple[int, int]] = two_free_ports,
        java_options: tuple[str, ...] = (),
    ) -> None:
        """`choose_ports` returns the broker's and the controller's port. `java_options` replace the archive's."""
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
        """Runs the tool, a JVM, only once. Later brokers get a copy of its files, with new names in one of them."""
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
        """Starts again on the same ports and data. This takes 3 s more after `kill`."""
        self.stop()
        self.start()


@contextmanager
def running_broker() -> Iterator[KafkaBroker]:
    with (
        tempfile.TemporaryDirectory(prefix="b", dir="/tmp", ignore_cleanup_errors=True) as folder,
        KafkaBroker(Path(folder)) as running,
    ):
        yield running
