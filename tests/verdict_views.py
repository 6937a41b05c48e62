"""What every view of a fleet shows of its verdict: the page in a browser, the command line, `/readyz`, `/metrics`,
and what the alert rules make of these."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import httpx
from selenium import webdriver

from tests.conftest import eventually
from tests.prometheus import Prometheus

__all__ = ["Shown", "Views", "agree", "are_silent"]

_METRIC = re.compile(r'^kctl_fleet_verdict\{.*level="(\w+)"\} 1\.0$', re.M)
_TIMEOUT_SECONDS = 1.5
"""`kctl rpc` waits for so long for what is frozen."""
_ALERTS = {"KctlMasterDown": "none", "KctlFleetFailing": "failing", "KctlFleetDegraded": "degraded"}


class Shown(NamedTuple):
    """Level and reason in one view, and its exit or status code where it has one."""

    level: str
    reason: str
    code: int | None = None

    @property
    def what(self) -> str:
        """The reason up to its time, which is the same in all views; why may have numbers that change."""
        return re.split(r" since \d", self.reason)[0]


@dataclass(frozen=True)
class Views:
    """Of one fleet, whose page is open in the browser."""

    config: Path
    url: str
    browser: webdriver.Chrome
    headers: dict[str, str]
    prometheus: Prometheus | None = None

    def shown(self) -> dict[str, Shown]:
        """All of them at once. One that cannot be had has the level `none`."""
        asked: dict[str, Callable[[], Shown]] = {
            "page": self.page,
            "status": self.status,
            "rpc": self.rpc,
            "readyz": self.readyz,
            "metrics": self.metrics,
            **({"alerts": self.alerts} if self.prometheus else {}),
        }
        with ThreadPoolExecutor(len(asked)) as pool:
            return dict(zip(asked, pool.map(lambda ask: ask(), asked.values()), strict=True))

    def await_shown(self, is_so: Callable[[dict[str, Shown]], bool], seconds: float, what: str) -> None:
        """Raises AssertionError with what they have shown last."""
        shown: dict[str, Shown] = {}

        def asked() -> bool:
            nonlocal shown
            shown = self.shown()
            return is_so(shown)

        try:
            eventually(asked, seconds, what)
        except AssertionError as error:
            error.add_note("\n".join(f"{name}: {each}" for name, each in shown.items()))
            raise

    def page(self) -> Shown:
        script = "return ['status', 'reason'].map(id => document.getElementById(id).innerText)"
        return Shown(*self.browser.execute_script(script))

    def status(self) -> Shown:
        done = self._kctl("status", "--timeout", str(_TIMEOUT_SECONDS))
        return _sentence((done.stdout or done.stderr.removeprefix("kctl: ")).split("\n")[0], done.returncode)

    def rpc(self) -> Shown:
        """The line on stderr, and the field of the JSON, which must be the same."""
        done = self._kctl("rpc", "ping", "-o", "json", "--timeout", str(_TIMEOUT_SECONDS))
        if not done.stdout:
            return _sentence(done.stderr.removeprefix("kctl: ").strip(), done.returncode)
        verdict = json.loads(done.stdout)["verdict"]
        line = f"kctl: the fleet is {verdict['level']}: {verdict['reason']}\n"
        assert (line in done.stderr) is (verdict["level"] != "ok"), done.stderr
        return Shown(verdict["level"], verdict["reason"], done.returncode)

    def readyz(self) -> Shown:
        try:
            answer = httpx.get(f"{self.url}/readyz", headers=self.headers, timeout=_TIMEOUT_SECONDS)
        except httpx.TransportError as error:
            return Shown("none", type(error).__name__)
        body = answer.json()
        if answer.status_code == 200:
            return Shown(body["status"], body["reason"], 200)
        return _sentence(body["error"]["message"], answer.status_code)

    def metrics(self) -> Shown:
        try:
            text = httpx.get(f"{self.url}/metrics", headers=self.headers, timeout=_TIMEOUT_SECONDS).text
        except httpx.TransportError as error:
            return Shown("none", type(error).__name__)
        found = _METRIC.search(text)
        return Shown(found[1] if found else "none", "")

    def alerts(self) -> Shown:
        """Of those that are about the fleet as a whole."""
        assert self.prometheus is not None
        active = self.prometheus.active()
        level = next((level for alert, level in _ALERTS.items() if alert in active), "ok")
        return Shown(level, ", ".join(sorted(active)))

    def _kctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "kctl", "-c", str(self.config), *words]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)


def _sentence(text: str, code: int) -> Shown:
    level, colon, reason = text.partition(": ")
    if level not in ("ok", "degraded", "unknown", "failing") or not colon:
        return Shown("none", text, code)
    return Shown(level, reason, code)


def agree(shown: dict[str, Shown], level: str, what: str) -> bool:
    """All views, on this level and on one reason; exit codes and `/readyz` follow from it."""
    reasons = {each.what for name, each in shown.items() if name not in ("metrics", "alerts")}
    alerts = shown.get("alerts")
    is_alerted = alerts is None or alerts.level == ("degraded" if level == "unknown" else level)
    is_one = len(reasons) == 1 and re.match(what, reasons.pop()) is not None
    codes = (shown["status"].code, shown["readyz"].code)
    return (
        is_one
        and is_alerted
        and {each.level for name, each in shown.items() if name != "alerts"} == {level}
        and codes == (0 if level == "ok" else 1, 200 if level in ("ok", "degraded") else 503)
    )


def are_silent(shown: dict[str, Shown], code: int) -> bool:
    """Of a master that is gone or hangs: the page has no data, nobody else an answer, the command line an exit code."""
    return (
        (shown["page"].level, shown["page"].what) == ("unknown", "no data")
        and all((shown[name].level, shown[name].code) == ("none", code) for name in ("status", "rpc"))
        and all(shown[name].level == "none" for name in shown.keys() & {"readyz", "metrics", "alerts"})
    )
