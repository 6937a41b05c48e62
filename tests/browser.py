"""A real Chromium with its own driver; without them a test is skipped, and fails in CI."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.conftest import OUTLIVING, require_programs


@contextmanager
def browser() -> Iterator[webdriver.Chrome]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1400,1200",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def browser_of_a_session() -> Iterator[webdriver.Chrome]:
    require_programs("chromium chromium-driver", "chromium", "chromedriver")
    before = set(psutil.Process().children(recursive=True))
    with browser() as driver:
        OUTLIVING.add(driver.service.process.pid)
        yield driver
    OUTLIVING.discard(driver.service.process.pid)
    left = set(psutil.Process().children(recursive=True)) - before
    _, alive = psutil.wait_procs([each for each in left if _is_of_browser(each)], timeout=60)
    assert alive == []


def _is_of_browser(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.name().startswith("chrom"))
    return False
