"""Takes README's pictures from a running demo (`make pictures`): the page in a headless Chromium, and `kctl top`.

Take them again when what they show has changed. The page's first screen in ten states of real fleets, at 390 and 1440
pixels, goes into FOLDER (`make pictures ARGS=FOLDER`, default: `build/pictures`). With FOLDER, so does each view of the
demo's page in both themes at 390, 1440 and 2560 pixels, for a look before the page changes for good.
"""

import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text
from selenium import webdriver

from kctl.demo.fleet import DemoFleet
from tests.browser import browser
from tests.conftest import eventually
from tests.integration.page_states import HEIGHTS, on_page, seen, states
from tests.servers.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parents[1]
PICTURES, STATES = ROOT / "docs" / "pictures", ROOT / "build" / "pictures"
COLUMNS, LINES = 118, 24
WARM_UP_MESSAGES = 250_000
RANGE_SECONDS = 120
VIEWS = {"fleet": "", "topic": "topic=demo", "worker": "worker=worker-0", "sinker": "worker=sinker-0"}
THEMES, WIDTHS = ("light", "dark"), (390, 1440, 2560)
KCTL = (sys.executable, "-m", "kctl")


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="kctl-pictures-") as folder,
        demo(Path(folder)) as fleet,
        browser() as chromium,
    ):
        eventually(lambda: stored(fleet) > WARM_UP_MESSAGES, 300, "there is something to see")
        page(chromium, str(fleet.url()), PICTURES / "page.png")
        if len(sys.argv) > 1:
            views(chromium, str(fleet.url()), Path(sys.argv[1]))
        top(chromium, fleet.config, Path(folder))
    first_screens(Path(sys.argv[1]) if len(sys.argv) > 1 else STATES)


def first_screens(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="k", dir="/tmp") as fleets,
        tempfile.TemporaryDirectory(prefix="b", dir="/tmp") as place,
        KafkaBroker(Path(place)) as broker,
        browser() as chromium,
        states(Path(fleets), broker) as found,
    ):
        for (name, state), width in product(found.items(), HEIGHTS):
            with on_page(chromium, state, width):
                seen(chromium, state, "return 0")
                await_second_snapshot(chromium)
                chromium.save_screenshot(str(folder / f"{name}-{width}.png"))


@contextmanager
def demo(folder: Path) -> Iterator[DemoFleet]:
    line = [*KCTL, "demo", "--sinkers", "2", "--dir", str(folder / "demo"), "-o", "json"]
    running = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    fleet = DemoFleet(folder / "demo")
    try:
        eventually(lambda: stored(fleet), 120, "a batch is stored")
        yield fleet
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(120)


def stored(fleet: DemoFleet) -> int:
    rows = (fleet.ask("workers") or {}).get("rows", ())
    return sum(row["rows_total"] or 0 for row in rows if row["kind"] == "worker")


def page(chromium: webdriver.Chrome, url: str, picture: Path, view: str = "", width: int = 1440) -> None:
    size = {"width": width, "height": 1200 if width > 500 else 2400, "deviceScaleFactor": 1, "mobile": False}
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    chromium.get("about:blank")
    chromium.get(f"{url}#range={RANGE_SECONDS}&{view}")
    ready = "['status', 'link'].map(id => document.getElementById(id).innerText)"
    eventually(lambda: chromium.execute_script(f"return {ready}") == ["ok", "live"], 60)
    eventually(lambda: chromium.execute_script("return document.querySelectorAll('canvas').length") > 1, 60)
    if not view:
        await_second_snapshot(chromium)
    chromium.save_screenshot(str(picture))


def await_second_snapshot(chromium: webdriver.Chrome) -> None:
    # Only the second snapshot shows how many messages are handled per second.
    handled = "return document.querySelector('#summary [data-number=handled]')?.innerText ?? '-'"
    eventually(lambda: chromium.execute_script(handled) != "-", 60, "a second snapshot is shown")


def views(chromium: webdriver.Chrome, url: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for theme in THEMES:
        media = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        for width in WIDTHS:
            for name, view in VIEWS.items():
                page(chromium, url, folder / f"{name}-{theme}-{width}.png", view, width)
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def top(chromium: webdriver.Chrome, config: Path, folder: Path) -> None:
    console = Console(record=True, width=COLUMNS, file=(folder / "top.txt").open("w"))
    console.print(Text.from_ansi(last_frame([*KCTL, "-c", str(config), "top"])), no_wrap=True)
    drawn = folder / "top.svg"
    console.save_svg(str(drawn), title="kctl top", theme=MONOKAI)
    framed = folder / "top.html"
    framed.write_text('<img src="top.svg" width="1180">')
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    chromium.set_window_size(1240, 900)
    chromium.get(framed.as_uri())
    chromium.find_element("tag name", "img").screenshot(str(PICTURES / "top.png"))


def last_frame(command: list[str]) -> str:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(LINES)}
        os.execvp(command[0], command)
    until, shown = time.monotonic() + 8.0, b""
    while time.monotonic() < until:
        shown += os.read(terminal, 65536)
    os.kill(pid, signal.SIGTERM)
    os.waitpid(pid, 0)
    os.close(terminal)
    frames = re.split(r"\x1b\[H", shown.decode("utf-8", "replace"))
    return max(frames[-3:], key=len).replace("\r\n", "\n").rstrip()


if __name__ == "__main__":
    main()
