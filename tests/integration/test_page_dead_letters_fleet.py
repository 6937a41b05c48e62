"""A dead letter on the page of a running fleet: a real master, a real sinker, a real browser."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from selenium import webdriver

from kctl_agent.message import Message
from kctl_agent.storage.file import FileStorage
from tests.conftest import eventually
from tests.fleet_snapshot import TOKEN
from tests.integration.conftest import Master
from tests.integration.dead_letters_page import TRACE, find, press, sign_in, status
from tests.integration.page_site import newest, text
from tests.integration.sinker_handlers import ledger
from tests.integration.sinkers import place, sinkers

__all__ = ["place"]

pytestmark = pytest.mark.timeout(120)


@pytest.mark.shows("the page: a dead letter is found, read, requeued and handled")
def test_dead_letters_are_handled_again(place: Path, master: Callable[..., Master], chromium: webdriver.Chrome) -> None:
    (place / "token").write_text(TOKEN)
    (place / "token").chmod(0o600)
    with closing(FileStorage(place / "data" / "storage.sqlite")) as storage:
        storage.prepare()
        storage.dead_letter([Message("t", 0, offset, None, b"%04d" % offset, 0) for offset in (7, 8, 9)], TRACE)
        one = master(sinkers=sinkers("counts"), workers={"count": 0}, http={"token_file": "token"})
        chromium.get(one.about["http_url"])
        sign_in(chromium, awaiting="3 dead letters match")

        find(chromium, text="0008")
        eventually(lambda: status(chromium) == "1 dead letter matches")
        press(chromium, "#dead-list tbody button")
        eventually(lambda: text(chromium, "dead-value") == "0008")
        press(chromium, "[data-verb=requeue][data-which=all]")
        press(chromium, "#ask-yes")

        eventually(lambda: ledger() == [(8, 0)])
        eventually(lambda: status(chromium) == "1 of 1 requeued")
        assert [each.offset for each in storage.dead()] == [7, 9]
        eventually(lambda: newest(chromium, 5) == "done")
        assert [newest(chromium, column) for column in (2, 3, 6)] == [
            "dead letters requeue",
            "text=(in the audit log) count=1",
            "1 of 1 dead letters requeued",
        ]
        chromium.get("about:blank")
    assert one.stop() == 0
