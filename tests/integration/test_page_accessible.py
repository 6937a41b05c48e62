"""axe-core finds nothing serious on the page in either theme, at any width, signed in or not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl_agent.message import Message
from kctl_agent.storage.file import FileStorage
from tests.integration.dead_letters_page import decoder, page, press, sent, sign_in, site, status, storage
from tests.integration.page_site import findings, rows

__all__ = ["decoder", "page", "sent", "site", "storage"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

Eventually = Callable[..., Any]


@pytest.mark.shows("the page: axe-core finds no serious problem in light, dark, narrow, wide, signed in")
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_serious(
    page: webdriver.Chrome, storage: FileStorage, eventually: Eventually, theme: str, width: int
) -> None:
    storage.dead_letter([Message("t", 0, 9, b"k", b'{"a": 1}', 0)], "no such customer")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": width < 500}
    page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        assert findings(page) == []
        sign_in(page)
        eventually(lambda: status(page) == "8 dead letters match")
        press(page, "#dead-list tbody button")
        eventually(page.find_element(By.ID, "dead-one").is_displayed)
        assert rows(page, "dead-groups") != []
        assert findings(page) == []
        press(page, "[data-verb=send][data-which=all]")
        assert findings(page) == []
        press(page, "#ask button[value=no]")
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
