"""The verdict in every view: page, command line, `kctl top`, API, `/readyz`, `/metrics`, and alert rules."""

import json
import re
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx
from selenium import webdriver

from tests.command_lines import KCTL, run_process
from tests.conftest import on_this_machine
from tests.prometheus import Prometheus

_METRIC = re.compile(r'^kctl_fleet_verdict\{.*level="(\w+)"\} 1\.0$', re.M)
_TIMEOUT_SECONDS = 1.5  # `kctl rpc` waits this long for a frozen process
_WELL_SECONDS = 180.0
_FAILING = re.compile(r'^kctl_fleet_finding\{.*level="failing",about="([^"]+)"\} 1\.0$', re.M)
_LATE_BROKER = re.compile(
    r"no Kafka broker has answered|waited for the brokers|is failing \(1\): brokers\.|^about brokers$"
)
_TOP_SECONDS = 5.0  # `kctl top` waits two seconds for frozen processes
_ALERTS = {"KctlMasterDown": "none", "KctlFleetFailing": "failing", "KctlFleetDegraded": "degraded"}


class Shown(NamedTuple):
    """Level and reason in one view, and its exit or status code if it has one."""

    level: str
    reason: str
    code: int | None = None
    about: str = ""  # the part of the fleet, as the API names it

    @property
    def what(self) -> str:
        """The reason up to its time, which all views share. The rest may have changing numbers."""
        return re.split(r" (?:since|at) \d|;", self.reason)[0]


class Top:
    """Without a terminal, `kctl top` prints lines. The last line is what it shows."""

    def __init__(self, config: Path, every_seconds: float = 0.5) -> None:
        line = [*KCTL, "-c", str(config), "top", "--every", str(every_seconds)]
        self._process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._line, self._at = "", time.monotonic()
        self._thread = threading.Thread(target=self._read, name="top")
        self._thread.start()

    def shown(self) -> Shown:
        age = time.monotonic() - self._at
        if age > on_this_machine(_TOP_SECONDS):
            return Shown("none", f"no line for {age:.1f} s")
        return _sentence(self._line.partition("  ")[2], None)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._line, self._at = line.rstrip(), time.monotonic()


@dataclass(frozen=True)
class Views:
    """Views of one fleet on one host. Views without a `url`, browser or Prometheus are not asked."""

    config: Path
    url: str | None
    headers: dict[str, str]
    browser: webdriver.Chrome | None = None
    prometheus: Prometheus | None = None
    top: Top | None = None
    timeout_seconds: float = _TIMEOUT_SECONDS

    def shown(self) -> dict[str, Shown]:
        """Asks all views at once. An unavailable view has the level `none`."""
        asked: dict[str, Callable[[], Shown]] = {
            "status": self.status,
            "rpc": self.rpc,
            **({"page": self.page} if self.browser else {}),
            **({"api": self.api, "readyz": self.readyz, "metrics": self.metrics} if self.url else {}),
            **({"alerts": self.alerts} if self.prometheus else {}),
            **({"top": self.top.shown} if self.top else {}),
        }
        with ThreadPoolExecutor(len(asked)) as pool:
            return dict(zip(asked, pool.map(lambda ask: ask(), asked.values()), strict=True))

    def page(self) -> Shown:
        assert self.browser is not None
        script = "return ['status', 'reason'].map(id => document.getElementById(id).innerText)"
        return Shown(*self.browser.execute_script(script))

    def status(self) -> Shown:
        done = self._kctl("status", "--timeout", str(self.timeout_seconds))
        return _sentence((done.stdout or done.stderr.removeprefix("kctl: ")).split("\n")[0], done.returncode)

    def rpc(self) -> Shown:
        """Checks that the line on stderr equals the field of the JSON."""
        done = self._kctl("rpc", "ping", "-o", "json", "--timeout", str(self.timeout_seconds))
        if not done.stdout:
            return _sentence(done.stderr.removeprefix("kctl: ").strip(), done.returncode)
        verdict = json.loads(done.stdout)["verdict"]
        line = f"kctl: the fleet is {verdict['level']}: {verdict['reason']}\n"
        assert (line in done.stderr) is (verdict["level"] != "ok"), done.stderr
        return Shown(verdict["level"], verdict["reason"], done.returncode)

    def api(self) -> Shown:
        answer = self._get("api/v1/status")
        if isinstance(answer, Shown):
            return answer
        if answer.status_code != 200:
            return Shown("none", answer.text, answer.status_code)
        verdict = answer.json()["verdict"]
        return Shown(verdict["level"], verdict["reason"], 200, verdict["about"])

    def readyz(self) -> Shown:
        answer = self._get("readyz")
        if isinstance(answer, Shown):
            return answer
        body = answer.json()
        if answer.status_code == 200:
            return Shown(body["status"], body["reason"], 200)
        return _sentence(body["error"]["message"], answer.status_code)

    def metrics(self) -> Shown:
        answer = self._get("metrics")
        if isinstance(answer, Shown):
            return answer
        found = _METRIC.search(answer.text)
        return Shown(found[1] if found else "none", f"about {', '.join(_FAILING.findall(answer.text))}")

    def alerts(self) -> Shown:
        assert self.prometheus is not None
        active = self.prometheus.active()
        alert = next((alert for alert in _ALERTS if alert in active), None)
        return Shown("ok", "") if alert is None else Shown(_ALERTS[alert], active[alert])

    def pending(self) -> set[str]:
        return set() if self.prometheus is None else set(self.prometheus.active())

    def _get(self, path: str) -> httpx.Response | Shown:
        try:
            return httpx.get(f"{self.url}/{path}", headers=self.headers, timeout=self.timeout_seconds)
        except httpx.TransportError as error:
            return Shown("none", type(error).__name__)

    def _kctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return run_process("-c", str(self.config), *words)


def _sentence(text: str, code: int | None) -> Shown:
    level, colon, reason = text.partition(": ")
    if level not in ("ok", "degraded", "unknown", "failing") or not colon:
        return Shown("none", text, code)
    return Shown(level, reason, code)


def agree(shown: dict[str, Shown], level: str, *whats: str) -> bool:
    """Whether all views have this level, one of these reasons (`N` is any number), and the exit codes and `/readyz`
    that follow. The alert names the part of the fleet."""
    reasons = {each.what for name, each in shown.items() if name not in ("metrics", "alerts")}
    alerts = shown.get("alerts")
    is_alerted = alerts is None or (
        alerts.level == ("degraded" if level == "unknown" else level)
        and (level == "ok" or re.search(rf"[:,] {re.escape(shown['api'].about)}[,.]", alerts.reason) is not None)
    )
    is_one = len(reasons) == 1 and any(map(pattern(*whats).fullmatch, reasons))
    codes = (shown["status"].code, shown["readyz"].code)
    return (
        is_one
        and is_alerted
        and {each.level for name, each in shown.items() if name != "alerts"} == {level}
        and codes == (0 if level == "ok" else 1, 200 if level in ("ok", "degraded") else 503)
    )


def pattern(*whats: str) -> re.Pattern[str]:
    return re.compile("|".join(re.sub(r"\bN\b", r"\\d+", re.escape(what)) for what in whats))


def are_silent(shown: dict[str, Shown], code: int) -> bool:
    """Whether a dead or hanging master shows: the page has no data, the command line an exit code, and no other view an
    answer."""
    return (
        (shown["page"].level, shown["page"].what) == ("unknown", "no data")
        and all((shown[name].level, shown[name].code) == ("none", code) for name in ("status", "rpc"))
        and all(shown[name].level == "none" for name in shown.keys() & {"api", "readyz", "metrics", "alerts", "top"})
    )


def await_shown(
    ask: Callable[[], dict[str, Shown]], is_so: Callable[[dict[str, Shown]], bool], seconds: float, what: str
) -> None:
    """Asks all views repeatedly. An answer of a frozen process takes a time-out. Raises AssertionError with what they
    have shown last if that was more than `seconds` of an idle machine after the call."""
    began = asked = time.monotonic()
    while not is_so(shown := ask()):
        if (passed := asked - began) > (limit := on_this_machine(seconds)):
            error = AssertionError(
                f"not within {seconds:g} s ({limit:.0f} s as busy as it is): {what}, for {passed:.0f} s"
            )
            error.add_note("\n".join(f"{name}: {each}" for name, each in shown.items()))
            raise error
        asked = time.monotonic()


def watched(
    ask: Callable[[], dict[str, Shown]],
    pending: Callable[[], set[str]],
    change: Callable[[], object],
    opened: Callable[[], None],
) -> set[str]:
    """Asks all views repeatedly from before a change until all is healthy. None may ever show `failing`. `opened` lets
    the views follow a master to another address after the change. Returns all alerts that were pending."""
    alerts: set[str] = set()

    def look() -> dict[str, Shown]:
        shown = ask()
        failing = {name: each for name, each in shown.items() if each.level == "failing"}
        late = {name for name, each in failing.items() if _LATE_BROKER.search(each.reason)}  # on a busy machine
        assert failing.keys() <= late, failing
        if not late:
            alerts.update(pending())
        return shown

    def keep_looking() -> None:
        while look() and not is_done.is_set():
            pass

    is_done = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(keep_looking)
        try:
            change()  # by this thread: a master ends with the thread that has started it
        finally:
            is_done.set()
        looking.result()
    opened()
    await_shown(look, lambda shown: all(each.level == "ok" for each in shown.values()), _WELL_SECONDS, "all is well")
    return alerts
