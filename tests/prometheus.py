"""A real Prometheus, a real Alertmanager and a webhook for its alerts."""

import json
import queue
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import psutil
import yaml

from tests import meanwhile
from tests.conftest import eventually, require_programs

Page = tuple[str, bytes]


require = partial(require_programs, "prometheus prometheus-alertmanager")


class _Server:
    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
        try:
            self.url = f"http://127.0.0.1:{eventually(self._port, 20, f'{command[0]} listens')}"
            eventually(self._is_ready, what=f"{command[0]} is ready")
        except BaseException:
            self.close()
            raise

    def _port(self) -> int | None:
        assert self._process.poll() is None, self._log.read_text()
        for connection in psutil.Process(self._process.pid).net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN:
                return int(connection.laddr.port)
        return None

    def _is_ready(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=60):
                return True
        except OSError:
            return False

    def get(self, path: str, **parameters: str) -> Any:
        url = f"{self.url}{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def close(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class Prometheus(_Server):
    """Scrapes `targets` (job `kctl`) and evaluates `rules` every second."""

    def __init__(
        self,
        directory: Path,
        targets: Sequence[str],
        *,
        rules: str = "",
        alertmanager: str | None = None,
        token: str | None = None,
    ) -> None:
        [prometheus] = require("prometheus")
        (directory / "rules.yml").write_text(rules)
        job: dict[str, Any] = {"job_name": "kctl", "static_configs": [{"targets": list(targets)}]}
        if token:
            job["authorization"] = {"credentials": token}
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [job],
        }
        if alertmanager:
            config["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
        (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
        command = [
            prometheus,
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'tsdb'}",
            "--web.listen-address=127.0.0.1:0",
            "--rules.alert.resend-delay=1s",
        ]
        super().__init__(command, directory / "prometheus.log")

    def query(self, expression: str) -> list[dict[str, Any]]:
        data = self.get("/api/v1/query", query=expression)["data"]
        assert data["resultType"] == "vector", expression
        series: list[dict[str, Any]] = data["result"]
        return series

    def has_scraped(self) -> bool:
        """Whether all targets answer, and rules were evaluated with their data."""
        return bool(self.query("count(up == 1) == count(up)")) and "KctlMasterDown" not in self.active()

    def active(self) -> dict[str, str]:
        """Alerts whose expression is true, pending or firing, with their descriptions."""
        found = self.get("/api/v1/alerts")["data"]["alerts"]
        return {alert["labels"]["alertname"]: alert["annotations"]["description"] for alert in found}

    def rules(self) -> list[dict[str, Any]]:
        return [rule for group in self.get("/api/v1/rules")["data"]["groups"] for rule in group["rules"]]


class Alertmanager(_Server):
    """Sends every alert to `webhook` at once."""

    def __init__(self, directory: Path, webhook: str) -> None:
        [alertmanager] = require("prometheus-alertmanager")
        config = {
            "route": {
                "receiver": "test",
                "group_by": ["..."],
                "group_wait": "0s",
                "group_interval": "1s",
                "repeat_interval": "1h",
            },
            "receivers": [{"name": "test", "webhook_configs": [{"url": webhook, "send_resolved": True}]}],
        }
        (directory / "alertmanager.yml").write_text(yaml.safe_dump(config))
        command = [
            alertmanager,
            f"--config.file={directory / 'alertmanager.yml'}",
            f"--storage.path={directory / 'alertmanager'}",
            "--web.listen-address=127.0.0.1:0",
            "--cluster.listen-address=",
        ]
        super().__init__(command, directory / "alertmanager.log")

    @property
    def address(self) -> str:
        return self.url.removeprefix("http://")


class _Quiet(BaseHTTPRequestHandler):
    timeout = 1.0  # Chromium opens a connection that it may not use

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class names it so
        pass


class Webhook:
    def __init__(self) -> None:
        self._arrived: queue.Queue[dict[str, Any]] = queue.Queue()
        self.seen: list[dict[str, Any]] = []
        arrived = self._arrived

        class Handler(_Quiet):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in body["alerts"]:
                    arrived.put(alert)
                self.send_response(200)
                self.end_headers()

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{server.server_port}/"
        self._serving = ExitStack()
        self._serving.enter_context(meanwhile.serving(server))

    def wait(
        self, alertname: str, status: str, seconds: float, *, since: int | None = None, **labels: str
    ) -> dict[str, Any]:
        """Waits for the next alert of this name, status and labels, or for one after the first `since` alerts. Raises
        AssertionError with the alerts that came."""
        before = len(self.seen)
        earlier = [] if since is None else self.seen[since:]
        wanted = {"alertname": alertname, **labels}
        try:
            while True:
                if earlier:
                    alert = earlier.pop(0)
                else:
                    alert = self._arrived.get(timeout=seconds)
                    self.seen.append(alert)
                if alert["status"] == status and wanted.items() <= alert["labels"].items():
                    return alert
        except queue.Empty:
            came = [(alert["labels"]["alertname"], alert["status"]) for alert in self.seen[before:]]
            raise AssertionError(f"{alertname} {status} did not come within {seconds:g} s; {came} did") from None

    def close(self) -> None:
        self._serving.close()


@contextmanager
def serving(page: Callable[[], Page]) -> Iterator[str]:
    class Handler(_Quiet):
        def do_GET(self) -> None:
            content_type, body = page()
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with meanwhile.serving(server):
        yield f"127.0.0.1:{server.server_port}"
