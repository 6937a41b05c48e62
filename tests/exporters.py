"""`kctl exporter` as a process, and what it exposes."""

import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import eventually
from tests.preloaded import Forked, preloaded


class Samples:
    def __init__(self, page: str) -> None:
        self.page = page
        self._samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]

    def of(self, name: str, *labels: str, **only: str) -> dict[tuple[str, ...], float]:
        """Values of a metric by `labels`, of the samples whose other labels have the values in `only`."""
        found = [
            (tuple(sample.labels[label] for label in labels), sample.value)
            for sample in self._samples
            if sample.name == name and only.items() <= sample.labels.items()
        ]
        assert len(dict(found)) == len(found), f"more than one sample of {name} by {labels}"
        return dict(found)

    def lag(self, group: str, **only: str) -> dict[tuple[str, ...], float]:
        return self.of("kctl_consumer_lag", "topic", "partition", group=group, **only)

    def all(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return {(sample.name, frozenset(sample.labels.items())): sample.value for sample in self._samples}


class Exporter:
    def __init__(self, folder: Path, *words: str, is_forked: bool = True) -> None:
        """A fork starts in a fraction of the time, but has at first the memory of its origin."""
        self.log = folder / "exporter.log"
        self.log.touch()
        words = ("exporter", *words, "--set", "http.port=0")
        self.process: Forked | subprocess.Popen[bytes]
        if is_forked:
            self.process = preloaded("tests.integration.master_process").start("run_command", self.log, *words)
            return
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "kctl", *words], stdout=log, stderr=log)

    @property
    def url(self) -> str:
        assert self.process.poll() is None, self.log.read_text()
        found = re.search(r"http=(http://\S+)", self.log.read_text())
        return found[1] if found else ""

    def get(self, path: str, token: str = "") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, headers=headers), timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def samples(self) -> Samples:
        status, page = self.get("/metrics")
        assert status == 200, page
        return Samples(page)

    def is_ready(self) -> bool:
        return bool(self.url) and self.get("/readyz")[0] == 200

    def stop(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@contextmanager
def running_exporter(folder: Path, *words: str, is_forked: bool = True) -> Iterator[Exporter]:
    """Waits until the exporter serves. It may not have polled its clusters yet."""
    exporter = Exporter(folder, *words, is_forked=is_forked)
    try:
        eventually(lambda: exporter.url, what="it does not serve")
        yield exporter
        assert exporter.stop() == 0, exporter.log.read_text()
    finally:
        if exporter.process.poll() is None:
            exporter.process.send_signal(signal.SIGKILL)
            exporter.process.wait()
