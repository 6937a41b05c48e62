"""axe-core finds nothing serious on the page in either theme, at any width, signed in or not."""

from __future__ import annotations

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl_agent.message import Message
from kctl_agent.storage.file import FileStorage
from tests.conftest import eventually
from tests.integration.dead_letters_page import decoder, page, press, sent, sign_in, site, storage
from tests.integration.page_site import emulated, findings, rows

__all__ = ["decoder", "page", "sent", "site", "storage"]

pytestmark = pytest.mark.timeout(120)


@pytest.mark.shows("the page: axe-core finds no serious problem in light, dark, narrow, wide, signed in")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_serious(page: webdriver.Chrome, storage: FileStorage, theme: str, width: int) -> None:
    storage.dead_letter([Message("t", 0, 9, b"k", b'{"a": 1}', 0)], "no such customer")
    with emulated(page, width, 1000, theme):
        assert findings(page) == []
        sign_in(page, awaiting="8 dead letters match")
        press(page, "#dead-list tbody button")
        eventually(page.find_element(By.ID, "dead-one").is_displayed)
        assert rows(page, "dead-groups") != []
        assert findings(page) == []
        press(page, "[data-verb=send][data-which=all]")
        assert findings(page) == []
        press(page, "#ask button[value=no]")
