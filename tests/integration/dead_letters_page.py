"""The page with dead letters of a storage, and a signed-in user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl.dead_letters.workbench import Workbench
from kctl.http.access import AccessRights
from kctl_agent.message import Message
from kctl_agent.schemas.decoding import Decoder
from kctl_agent.storage.claim import DeadLetter
from kctl_agent.storage.file import FileStorage
from tests.conftest import eventually
from tests.fleet_snapshot import TOKEN, TOKENS
from tests.integration.page_site import Site, logged, text

TRACE = """the handler shop:handle raised KeyError: 'id' on t-1 offsets 0..4 (5 messages)
Traceback (most recent call last):
  File "/srv/app/shop.py", line 7, in handle
    orders[order["id"]] = order
KeyError: 'id'"""


@pytest.fixture
def storage(tmp_path: Path) -> Iterator[FileStorage]:
    storage = FileStorage(tmp_path / "storage.sqlite")
    storage.prepare()
    storage.dead_letter([Message("t", 1, n, f"k{n}".encode(), b'{"v": %d}' % n, 0) for n in range(5)], TRACE)
    storage.dead_letter([Message("t", 0, n, None, b"v", 0) for n in range(2)], "no such customer")
    yield storage
    storage.close()


@pytest.fixture
def sent() -> list[list[DeadLetter]]:
    return []


@pytest.fixture
def decoder() -> Decoder | None:
    """A test may have another."""
    return None


@pytest.fixture
def site(storage: FileStorage, tmp_path: Path, sent: list[list[DeadLetter]], decoder: Decoder | None) -> Iterator[Site]:
    def send(some: list[DeadLetter]) -> list[DeadLetter]:
        sent.append(some)
        return some

    bench = Workbench(
        lambda: nullcontext(storage),
        lambda: tmp_path / "operations.jsonl",
        lambda _: nullcontext(send),
        lambda *given: served.operations.attend(*given),
        decoder=decoder,
    )
    with Site(2, access=AccessRights(tokens=TOKENS), dead_letters=bench) as served:
        yield served


@pytest.fixture
def page(chromium: webdriver.Chrome, site: Site) -> Iterator[webdriver.Chrome]:
    logged(chromium)
    chromium.get(site.url)
    eventually(lambda: text(chromium, "link") == "live")
    yield chromium
    errors = [entry["message"] for entry in logged(chromium) if "favicon" not in entry["message"]]
    chromium.get("about:blank")
    assert [message for message in errors if "401" not in message and "409" not in message] == []


def sign_in(page: webdriver.Chrome, token: str = TOKEN, awaiting: str = "") -> None:
    page.find_element(By.ID, "token").send_keys(token)
    page.find_element(By.CSS_SELECTOR, "#sign-in button").click()
    eventually(lambda: awaiting in ("", status(page)))


def status(page: webdriver.Chrome) -> str:
    return text(page, "dead-status")


def press(page: webdriver.Chrome, selector: str) -> None:
    page.execute_script("document.querySelector(arguments[0]).click()", selector)


def find(page: webdriver.Chrome, **values: str) -> None:
    for name, value in values.items():
        field = page.find_element(By.CSS_SELECTOR, f"#dead-filter [name={name}]")
        field.clear()
        field.send_keys(value)
    press(page, "#dead-filter button")
