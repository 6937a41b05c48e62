"""Dead letters on the page in a real browser: signed in, found, read, requeued, deleted."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl.http.api import dead_letters as api
from kctl.master.snapshot import Reduced
from kctl_agent.message import Message
from kctl_agent.replies.block_size import StorageReply
from kctl_agent.schemas.decoding import Decoder
from kctl_agent.schemas.formats import Formats
from kctl_agent.storage import numbered_dead_letters
from kctl_agent.storage.base import Progress
from kctl_agent.storage.claim import DeadLetter, DeadLetterGroup
from kctl_agent.storage.file import FileStorage
from tests.conftest import eventually
from tests.fleet_snapshot import TOKEN
from tests.integration.dead_letters_page import TRACE, decoder, find, page, press, sent, sign_in, site, status, storage
from tests.integration.page_site import Site, emulated, rows, shown, text

__all__ = ["decoder", "page", "sent", "site", "storage"]

pytestmark = pytest.mark.timeout(120)

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
BIDI = "\u202egnp.exe\u2066"


@pytest.mark.shows("the page: every reader sees class and count of dead letters, never their errors")
def test_readers_see_classes_and_no_text(page: webdriver.Chrome, site: Site) -> None:
    assert not page.find_element(By.ID, "died").is_displayed(), "no dead letter is known yet"

    site.collect(replace(site.latest, block_size=Reduced(StorageReply(pending=0, processing=0, dead=7))))

    eventually(lambda: len(rows(page, "dead-classes")) == 2)
    assert [row[:2] for row in rows(page, "dead-classes")] == [["KeyError", "5"], ["another reason", "2"]]
    assert "no such customer" not in shown(page, "body")
    assert not page.find_element(By.ID, "workbench").is_displayed()


@pytest.mark.shows("the page: after signing in dead letters are grouped, found, read, requeued, deleted")
def test_a_group_is_read_and_requeued(page: webdriver.Chrome, storage: FileStorage) -> None:
    sign_in(page, "a-wrong-token-of-somebody")
    eventually(lambda: text(page, "sign-status") == "the token is not the right one")
    assert not page.find_element(By.ID, "workbench").is_displayed()
    page.find_element(By.ID, "token").clear()
    sign_in(page, awaiting="7 dead letters match")
    assert [(row[0], row[3], row[5]) for row in rows(page, "dead-groups")] == [
        ("5", "shop.py:7", "KeyError"),
        ("2", "-", "no such customer"),
    ]

    press(page, "#dead-groups tbody button")
    eventually(lambda: status(page) == "5 dead letters match")
    assert [row[7] for row in rows(page, "dead-list")] == ["k0", "k1", "k2", "k3", "k4"]
    press(page, "#dead-list tbody button")
    eventually(lambda: text(page, "dead-value") == '{"v": 0}')
    assert text(page, "dead-trace").startswith("the handler shop:handle raised KeyError")
    page.find_element(By.ID, "dead-as").send_keys("hex")
    eventually(lambda: text(page, "dead-value") == b'{"v": 0}'.hex())
    press(page, "#dead-close")
    assert page.switch_to.active_element.text == "Show", "where it was opened"

    press(page, "[data-verb=requeue][data-which=all]")
    assert text(page, "ask-text").startswith("5 dead letters (error_class KeyError, line shop.py:7) will be requeued")
    press(page, "#ask button[value=no]")
    assert storage.count_dead() == 7
    press(page, "[data-verb=requeue][data-which=all]")
    press(page, "#ask-yes")

    eventually(lambda: (status(page), rows(page, "dead-list")) == ("5 of 5 requeued", []))
    assert (storage.count_dead(), storage.stats().pending) == (2, 5)


def test_groups_without_a_line_are_apart(page: webdriver.Chrome, storage: FileStorage) -> None:
    storage.dead_letter([Message("t", 2, 0, None, b"v", 0)], TRACE.replace("KeyError", "no such customer", 1))
    storage.dead_letter([Message("t", 2, 1, None, b"v", 0)], TRACE.replace("raised KeyError: 'id'", "was not answered"))
    sign_in(page)
    eventually(lambda: status(page).endswith(("letter matches", "letters match")))
    page.execute_script(
        "[...document.querySelectorAll('#dead-groups tr')].find(row => row.textContent.includes('no such customer'))"
        ".querySelector('button').click()"
    )
    eventually(lambda: status(page) == "2 dead letters match")


def test_some_are_sent_to_a_topic(page: webdriver.Chrome, storage: FileStorage, sent: list[list[DeadLetter]]) -> None:
    sign_in(page, awaiting="7 dead letters match")
    press(page, "[data-verb=send][data-which=all]")
    press(page, "#ask-yes")
    assert page.find_element(By.ID, "ask").is_displayed(), "a topic is needed"
    press(page, "#ask button[value=no]")
    assert not page.find_element(By.ID, "ask").is_displayed()
    press(page, "[data-verb=send][data-which=all]")
    page.find_element(By.ID, "to").send_keys("parked")
    press(page, "#ask-yes")

    eventually(lambda: (status(page), rows(page, "dead-list")) == ("7 of 7 sent", []))
    assert [each.offset for some in sent for each in some] == [0, 1, 2, 3, 4, 0, 1]
    storage.dead_letter([Message("t", 0, 9, None, b"v", 0)], "one more")
    press(page, "#dead-filter button[type=reset]")
    eventually(lambda: status(page) == "1 dead letter matches")
    press(page, "[data-verb=delete][data-which=all]")
    assert not page.find_element(By.ID, "to").is_displayed(), "nor for anything else"


@pytest.mark.shows("the page: a search without an index fills a page, counts the rest, and can be stopped")
def test_a_search_can_be_stopped(page: webdriver.Chrome, storage: FileStorage, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(_: object, __: int, progress: Progress) -> list[DeadLetterGroup]:
        while not stopped.wait(0.01):
            progress(0)
        raise AssertionError

    stopped = threading.Event()
    monkeypatch.setattr(numbered_dead_letters, "SCANNED", 2)
    monkeypatch.setattr(api, "PAGE_SECONDS", 0.0)
    sign_in(page, awaiting="7 dead letters match")
    find(page, text='"v": 4')
    eventually(lambda: status(page) == "1 dead letter matches")
    assert [row[7] for row in rows(page, "dead-list")] == ["k4"]

    monkeypatch.setattr(storage, "dead_groups", never)
    find(page, text='"v": 3')
    eventually(lambda: [row[7] for row in rows(page, "dead-list")] == ["k3"])
    assert status(page) == "counting what matches …"
    press(page, "#dead-list tbody input")
    assert page.find_element(By.CSS_SELECTOR, "[data-verb=requeue][data-which=chosen]").is_enabled()
    assert not page.find_element(By.CSS_SELECTOR, "[data-verb=requeue][data-which=all]").is_enabled()
    press(page, "#dead-stop")
    eventually(lambda: (status(page), rows(page, "dead-groups")) == ("stopped", []))
    monkeypatch.undo()
    press(page, "#dead-filter button")
    eventually(lambda: status(page) == "1 dead letter matches")


def test_numbers_are_shown_as_sent(page: webdriver.Chrome, storage: FileStorage) -> None:
    storage.dead_letter([Message("u", 0, 0, None, b'{"id": 9007199254740993, "price": 1.10}', 0)], "no")
    sign_in(page, awaiting="8 dead letters match")
    find(page, topic="u")
    eventually(lambda: status(page) == "1 dead letter matches")
    press(page, "#dead-list tbody button")
    page.find_element(By.ID, "dead-as").send_keys("json")
    eventually(lambda: text(page, "dead-value").split() == ["{", '"id":', "9007199254740993,", '"price":', "1.1", "}"])


def test_some_are_chosen_and_deleted(page: webdriver.Chrome, storage: FileStorage) -> None:
    sign_in(page, awaiting="7 dead letters match")
    find(page, text='"v": 3')
    eventually(lambda: status(page) == "1 dead letter matches")
    press(page, "#dead-list tbody input")
    press(page, "[data-verb=delete][data-which=chosen]")
    press(page, "#ask-yes")
    eventually(lambda: (status(page), rows(page, "dead-list")) == ("1 of 1 deleted", []))
    press(page, "#dead-filter button[type=reset]")
    eventually(lambda: status(page) == "6 dead letters match")

    storage.dead_letter([Message("t", 0, 9, None, b"v", 0)], "one more meanwhile")
    press(page, "[data-verb=delete][data-which=all]")
    press(page, "#ask-yes")

    eventually(lambda: status(page).startswith("7 dead letters match, but 6 were expected"))
    assert storage.count_dead() == 7
    press(page, "#sign-out")
    assert rows(page, "dead-list") == rows(page, "dead-groups") == []
    assert TOKEN not in page.page_source
    assert page.execute_script("return [localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]


@pytest.mark.shows("a dead letter on the page has its decoded value, or why it cannot be decoded")
@pytest.mark.parametrize("decoder", [Decoder(Formats(value="json"))])
def test_decoded_values_are_shown(page: webdriver.Chrome, storage: FileStorage) -> None:
    framed = b'\0\0\0\0\7{"id": 1}'
    storage.remove_dead()
    storage.dead_letter([Message("t", 0, at, None, value, 0) for at, value in enumerate((framed, b"<b>"))], "no")
    sign_in(page, awaiting="2 dead letters match")

    press(page, "#dead-list tbody tr:nth-child(1) button")
    eventually(lambda: text(page, "dead-value").split() == ["{", '"id":', "1", "}"])
    press(page, "#dead-list tbody tr:nth-child(2) button")
    eventually(lambda: text(page, "dead-value").startswith("<b>\nBadRecord: not JSON: "))
    page.find_element(By.ID, "dead-as").send_keys("hex")
    press(page, "#dead-list tbody tr:nth-child(1) button")
    eventually(lambda: text(page, "dead-value") == framed.hex())


def test_producers_text_stays_text(page: webdriver.Chrome, storage: FileStorage) -> None:
    title = page.title
    storage.remove_dead()
    hostile = (MARKUP + BIDI).encode()
    headers = ((MARKUP, hostile),)
    storage.dead_letter([Message("t", 0, 0, hostile, hostile + b"x" * (1 << 20), 0, headers)], f"{MARKUP}{BIDI}: 1")
    sign_in(page, awaiting="1 dead letter matches")

    press(page, "#dead-list tbody button")
    eventually(lambda: text(page, "dead-value").startswith(MARKUP))

    value = text(page, "dead-value")
    assert "\\u202egnp.exe\\u2066" in value
    assert "characters more; an export has them" in value
    (row,) = rows(page, "dead-list")
    assert row[8].startswith(MARKUP)
    assert "\\u202e" in row[7]
    assert (
        page.execute_script("return document.querySelectorAll('#dead-title ~ * img, #dead-title ~ * script').length")
        == 0
    )
    assert page.title == title


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_window(page: webdriver.Chrome, width: int) -> None:
    with emulated(page, width):
        sign_in(page, awaiting="7 dead letters match")
        assert page.execute_script("return document.documentElement.scrollWidth") <= width
