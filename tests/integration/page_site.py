"""The page, served from a snapshot and read in a browser."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Any, cast

from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl.dead_letters.workbench import Workbench
from kctl.hosts.hosts import Hosts
from kctl.http.access import AccessRights
from kctl.http.server import HttpServer
from kctl.master.events import EventFeed
from kctl.master.operations.operation_log import OperationLog
from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.master.verdict import Verdicts
from kctl.operations import operations
from kctl_agent.replies.encode import encoded
from kctl_agent.replies.workers import Event
from kctl_agent.rpc.messages import Request
from tests.conftest import eventually
from tests.fleet_snapshot import NOW, TOKEN, history_of, partition, serving, snapshot, source_of
from tests.partitions import columns_of


class Site:
    """Serves on its own thread, so that the test's thread can drive the browser."""

    def __init__(
        self,
        partitions: int,
        max_age_seconds: float = 3600.0,
        access: AccessRights | None = None,
        dead_letters: Workbench | None = None,
        hosts: Hosts | None = None,
        **more: Any,
    ) -> None:
        self._access, self._dead_letters, self._hosts, self._more = access, dead_letters, hosts, more
        self.operations = OperationLog(operations(), cast("Any", None), None)
        self.latest = snapshot(partitions)
        self._verdicts = Verdicts(lambda: self.latest, max_age_seconds, lambda: NOW)
        self.history = history_of(*_past(partitions), self.latest)
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Site:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._end, self._feed = asyncio.get_running_loop(), asyncio.Event(), EventFeed()
        source = replace(
            source_of(None),
            latest=lambda: self.latest,
            verdicts=self._verdicts,
            feed=self._feed,
            history=self.history,
            dead_letters=self._dead_letters,
            hosts=self._hosts,
            ask=self._ask,
            answer=self._answer,
            operations=self.operations,
            **self._more,
        )
        async with serving(source, self._access) as self._server:
            self._ready.set()
            await self._end.wait()

    async def _ask(self, request: Request) -> Any:
        return self.latest.reduced(request.rpc)

    async def _answer(self, _request: Request) -> dict[str, Any]:
        return {"result": {"verdict": encoded(self._verdicts.current()), "rows": []}}

    @property
    def url(self) -> str:
        server: HttpServer = self._server
        return server.url

    def use(self, access: AccessRights) -> None:
        self._loop.call_soon_threadsafe(self._server.use, access)

    def collect(self, latest: FleetSnapshot, *events: Event) -> None:
        self.latest = replace(latest, sequence=self.latest.sequence + 1)
        self.history.add(self.latest)
        self._loop.call_soon_threadsafe(self._feed.publish, events)
        self._loop.call_soon_threadsafe(self._feed.collected)


def _past(partitions: int) -> Iterator[FleetSnapshot]:
    for ago, lag in ((30, 1), (15, 5)):
        rows = columns_of(*(partition(number, lag) for number in range(partitions)))
        before = replace(snapshot(partitions), offset_checker=Reduced(rows))
        yield replace(before, taken_at=before.taken_at - ago, taken_at_unix=before.taken_at_unix - ago)


def logged(driver: webdriver.Chrome) -> list[dict[str, str]]:
    found: list[dict[str, str]] = driver.get_log("browser")  # type: ignore[no-untyped-call]  # Selenium has no types
    return found


@contextmanager
def visited(page: webdriver.Chrome, url: str, is_ready: Callable[[], object], *harmless: str) -> Iterator[None]:
    """At the end the console must be empty, except for messages that contain one of `harmless`."""
    logged(page)
    page.get(url)
    eventually(is_ready)
    yield
    console = [entry["message"] for entry in logged(page)]
    page.get("about:blank")  # the page's stream would reconnect to the closed server
    assert [each for each in console if not any(word in each for word in ("favicon", *harmless))] == []


def press(page: webdriver.Chrome, selector: str) -> None:
    page.execute_script("document.querySelector(arguments[0]).click()", selector)


def dead_status(page: webdriver.Chrome) -> str:
    return text(page, "dead-status")


def find_dead(page: webdriver.Chrome, **values: str) -> None:
    for name, value in values.items():
        field = page.find_element(By.CSS_SELECTOR, f"#dead-filter [name={name}]")
        field.clear()
        field.send_keys(value)
    press(page, "#dead-filter button")


def sign_in(page: webdriver.Chrome, token: str = TOKEN, awaiting: str = "") -> None:
    page.find_element(By.ID, "token").send_keys(token)
    page.find_element(By.CSS_SELECTOR, "#sign-in button").click()
    eventually(lambda: awaiting in ("", dead_status(page)))


def shown(driver: webdriver.Chrome, selector: str) -> str:
    # One script finds and reads: each snapshot redraws the tables, so an element found earlier is gone.
    found: str = driver.execute_script("return document.querySelector(arguments[0]).innerText", selector)
    return found


def text(driver: webdriver.Chrome, name: str) -> str:
    return shown(driver, f"#{name}")


def number(driver: webdriver.Chrome, table: str, name: str) -> str:
    return shown(driver, f"#{table} dd[data-number='{name}']")


def attribute(driver: webdriver.Chrome, selector: str, name: str) -> str:
    found: str = driver.execute_script(
        "return document.querySelector(arguments[0]).getAttribute(arguments[1])", selector, name
    )
    return found


def rows(driver: webdriver.Chrome, table: str) -> list[list[str]]:
    found: list[list[str]] = driver.execute_script(
        f"return [...document.querySelectorAll('#{table} tbody tr')].map(row => [...row.cells].map(c => c.textContent))"
    )
    return found


GRAVE = {"serious", "critical"}


@cache
def axe() -> str:
    return resources.files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def findings(page: webdriver.Chrome) -> list[tuple[str, list[str]]]:
    page.execute_script(axe())
    found = page.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    assert found["passes"], "it has looked"
    return [
        (each["id"], [node["html"][:200] for node in each["nodes"]])
        for each in found["violations"]
        if each["impact"] in GRAVE
    ]


def charts(page: webdriver.Chrome) -> list[str]:
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll('#charts .chart')].filter(f => f.querySelector('canvas')).map(f => f.id)"
    )
    return found


def caption(page: webdriver.Chrome, chart: str) -> list[str]:
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll(`#chart-${arguments[0]} .value`)].map(each => each.textContent)", chart
    )
    return found


def drawn(page: webdriver.Chrome, chart: str, color: str) -> list[float]:
    """Where a chart's plot has pixels of this color, as parts of its width."""
    script = """
        const box = document.querySelector(`#chart-${arguments[0]}`), canvas = box.querySelector('canvas');
        const over = box.querySelector('.u-over'), scale = canvas.width / canvas.clientWidth;
        const wanted = getComputedStyle(document.body).getPropertyValue(arguments[1]).match(/[0-9a-f]{2}/g)
            .map(each => parseInt(each, 16));
        const [left, top] = [over.offsetLeft * scale, over.offsetTop * scale];
        const [width, height] = [over.clientWidth * scale, over.clientHeight * scale];
        const {data} = canvas.getContext('2d').getImageData(left, top, width, height), found = [];
        for (let at = 0; at < data.length; at += 4)
            if (data[at + 3] > 64 && wanted.every((part, place) => Math.abs(data[at + place] - part) < 40))
                found.push(at / 4 % Math.floor(width) / width);
        return found;
    """
    found: list[float] = page.execute_script(script, chart, color)
    return found


@contextmanager
def emulated(page: webdriver.Chrome, width: int = 0, height: int = 900, theme: str = "") -> Iterator[None]:
    """A screen of this width (a telephone's below 500), with a preferred color scheme."""
    if width:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": theme}] if theme else []
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    try:
        yield
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@contextmanager
def second_tab(page: webdriver.Chrome, url: str) -> Iterator[tuple[str, str]]:
    """Yields the handles of the first tab, and of the new one, which is current."""
    first = page.current_window_handle
    page.switch_to.new_window("tab")
    page.get(url)
    try:
        yield first, page.current_window_handle
    finally:
        page.close()
        page.switch_to.window(first)


def newest(page: webdriver.Chrome, column: int) -> str:
    found = rows(page, "operations")
    return found[0][column] if found else ""
