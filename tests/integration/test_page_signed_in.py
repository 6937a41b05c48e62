"""What a signed-in user does on the page in a real browser: dead letters, and what a token protects."""

import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl.dead_letters.workbench import Workbench
from kctl.http.access import AccessRights, Token
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
from tests.conformance.dead import TRACE
from tests.conftest import eventually
from tests.fleet_snapshot import TOKEN, TOKENS
from tests.integration.page_site import (
    Site,
    dead_status,
    emulated,
    find_dead,
    findings,
    logged,
    press,
    rows,
    second_tab,
    shown,
    sign_in,
    text,
    visited,
)
from tests.prometheus import serving

MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
BIDI = "\u202egnp.exe\u2066"


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
    with visited(chromium, site.url, lambda: text(chromium, "link") == "live", "401", "409"):
        yield chromium


@pytest.mark.shows("the page: every reader sees class and count of dead letters, never their errors")
def test_readers_see_classes_and_no_text(page: webdriver.Chrome, site: Site) -> None:
    assert not page.find_element(By.ID, "died").is_displayed(), "no dead letter is known yet"

    site.collect(replace(site.latest, block_size=Reduced(StorageReply(pending=0, processing=0, dead=7))))

    eventually(lambda: len(rows(page, "dead-classes")) == 2)
    assert [row[:2] for row in rows(page, "dead-classes")] == [["KeyError", "5"], ["a reason from your code", "2"]]
    assert "no such customer" not in shown(page, "body")
    assert not page.find_element(By.ID, "workbench").is_displayed()


@pytest.mark.shows("the page: after signing in dead letters are grouped, found, read, requeued, deleted")
def test_a_group_is_read_and_requeued(page: webdriver.Chrome, storage: FileStorage) -> None:
    sign_in(page, "a-wrong-token-of-somebody")
    eventually(lambda: text(page, "sign-status") == "the token is wrong")
    assert not page.find_element(By.ID, "workbench").is_displayed()
    page.find_element(By.ID, "token").clear()
    sign_in(page, awaiting="7 dead letters match")
    assert [(row[0], row[3], row[5]) for row in rows(page, "dead-groups")] == [
        ("5", "shop.py:7", "KeyError"),
        ("2", "-", "no such customer"),
    ]

    press(page, "#dead-groups tbody button")
    eventually(lambda: dead_status(page) == "5 dead letters match")
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

    eventually(lambda: (dead_status(page), rows(page, "dead-list")) == ("5 of 5 requeued", []))
    assert (storage.count_dead(), storage.stats().pending) == (2, 5)

    trace = TRACE.replace("KeyError", "no such customer", 1)  # of a line, unlike the two of that error
    storage.dead_letter([Message("t", 2, 0, None, b"v", 0)], trace)
    press(page, "#dead-filter button[type=reset]")
    eventually(lambda: dead_status(page) == "3 dead letters match")
    press(page, "#dead-groups tbody button")
    eventually(lambda: dead_status(page) == "2 dead letters match")


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

    eventually(lambda: (dead_status(page), rows(page, "dead-list")) == ("7 of 7 sent", []))
    assert [each.offset for some in sent for each in some] == [0, 1, 2, 3, 4, 0, 1]
    storage.dead_letter([Message("t", 0, 9, None, b"v", 0)], "one more")
    press(page, "#dead-filter button[type=reset]")
    eventually(lambda: dead_status(page) == "1 dead letter matches")
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
    find_dead(page, text='"v": 4')
    eventually(lambda: dead_status(page) == "1 dead letter matches")
    assert [row[7] for row in rows(page, "dead-list")] == ["k4"]

    monkeypatch.setattr(storage, "dead_groups", never)
    find_dead(page, text='"v": 3')
    eventually(lambda: [row[7] for row in rows(page, "dead-list")] == ["k3"])
    assert dead_status(page) == "counting what matches …"
    press(page, "#dead-list tbody input")
    assert page.find_element(By.CSS_SELECTOR, "[data-verb=requeue][data-which=chosen]").is_enabled()
    assert not page.find_element(By.CSS_SELECTOR, "[data-verb=requeue][data-which=all]").is_enabled()
    press(page, "#dead-stop")
    eventually(lambda: (dead_status(page), rows(page, "dead-groups")) == ("stopped", []))
    monkeypatch.undo()
    press(page, "#dead-filter button")
    eventually(lambda: dead_status(page) == "1 dead letter matches")


def test_some_are_chosen_and_deleted(page: webdriver.Chrome, storage: FileStorage) -> None:
    sign_in(page, awaiting="7 dead letters match")
    find_dead(page, text='"v": 3')
    eventually(lambda: dead_status(page) == "1 dead letter matches")
    press(page, "#dead-list tbody input")
    press(page, "[data-verb=delete][data-which=chosen]")
    press(page, "#ask-yes")
    eventually(lambda: (dead_status(page), rows(page, "dead-list")) == ("1 of 1 deleted", []))
    press(page, "#dead-filter button[type=reset]")
    eventually(lambda: dead_status(page) == "6 dead letters match")

    storage.dead_letter([Message("t", 0, 9, None, b"v", 0)], "one more meanwhile")
    press(page, "[data-verb=delete][data-which=all]")
    press(page, "#ask-yes")

    eventually(lambda: dead_status(page).startswith("7 dead letters match, but 6 were expected"))
    assert storage.count_dead() == 7
    press(page, "#sign-out")
    assert rows(page, "dead-list") == rows(page, "dead-groups") == []


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


def test_producers_text_stays_text_and_numbers_keep_their_digits(page: webdriver.Chrome, storage: FileStorage) -> None:
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

    storage.dead_letter([Message("u", 0, 0, None, b'{"id": 9007199254740993, "price": 1.10}', 0)], "no")
    find_dead(page, topic="u")
    eventually(lambda: ["u" in row for row in rows(page, "dead-list")] == [True])
    press(page, "#dead-list tbody button")
    page.find_element(By.ID, "dead-as").send_keys("json")
    number = "9007199254740993,"  # more than a number of JavaScript holds
    eventually(lambda: text(page, "dead-value").split() == ["{", '"id":', number, '"price":', "1.1", "}"])


# ---- who may act


OTHER_TOKEN = "fedcba9876543210-token"
FOREIGN = """
<!doctype html><title>foreign</title>
<iframe id="framed" src="{url}/"></iframe>
<form id="form" method="post" enctype="text/plain" target="into" action="{url}/api/v1/dead-letters/delete">
<input name='{{"filter": {{}}, "count": 7, "x": "' value='"}}'></form><iframe name="into"></iframe>
<script>
const body = JSON.stringify({{filter: {{}}, count: 7}}), url = "{url}/api/v1/dead-letters/delete";
const given = [
  {{method: "POST", mode: "no-cors", credentials: "include", body}},
  {{method: "POST", credentials: "include", body, headers: {{"content-type": "application/json"}}}},
  {{method: "POST", body, headers: {{"content-type": "application/json", "authorization": "Bearer {token}"}}}},
];
document.getElementById("form").submit();
const asked = [...given.map(each => fetch(url, each)), fetch("{url}/api/v1/status")];
Promise.allSettled(asked).then(all => {{
  document.title = all.map(each => each.status === "rejected" ? "rejected" : each.value.type).join(" ");
}});
</script>
"""


def is_signed_in(page: webdriver.Chrome) -> bool:
    return page.find_element(By.ID, "workbench").is_displayed()


def kept(page: webdriver.Chrome) -> str:
    """All that a browser could keep or show of a page, except the memory of its scripts."""
    found: str = page.execute_script(
        "return [location.href, document.cookie, document.referrer, JSON.stringify(history.state),"
        " JSON.stringify(localStorage), JSON.stringify(sessionStorage), document.documentElement.outerHTML,"
        " ...[...document.querySelectorAll('input')].map(each => each.value),"
        " ...performance.getEntriesByType('resource').map(each => each.name)].join('\\n')"
    )
    return found


@pytest.mark.shows("the page: a replaced token signs out, and hides what it showed")
def test_a_replaced_token_signs_out(page: webdriver.Chrome, site: Site, storage: FileStorage) -> None:
    sign_in(page, awaiting="7 dead letters match")
    press(page, "#dead-list tbody button")
    eventually(lambda: text(page, "dead-value") != "")

    site.use(AccessRights(tokens=(Token(OTHER_TOKEN, may_act=True),)))

    eventually(lambda: text(page, "sign-status") == "signed out: the token is wrong")
    assert not is_signed_in(page)
    assert rows(page, "dead-list") == rows(page, "dead-groups") == rows(page, "operations") == []
    gone = "return ['dead-value', 'dead-trace', 'dead-fields'].map(id => document.getElementById(id).textContent)"
    assert page.execute_script(gone) == ["", "", ""]
    asked = "return performance.getEntriesByName(location.origin + '/api/v1/operations').length"
    before = page.execute_script(asked)
    sign_in(page, OTHER_TOKEN, awaiting="7 dead letters match")
    assert text(page, "sign-status") == ""
    eventually(lambda: page.execute_script(asked) > before, what="it goes on with the new one")
    assert storage.count_dead() == 7


@pytest.mark.shows("the page: one tab shows the operations of the other; outdated ones are rejected")
def test_two_tabs_show_the_same_and_what_is_outdated_is_rejected(
    page: webdriver.Chrome, site: Site, storage: FileStorage
) -> None:
    sign_in(page, awaiting="7 dead letters match")
    press(page, "[data-verb=requeue][data-which=all]")
    with second_tab(page, site.url) as (first, _):
        eventually(lambda: text(page, "link") == "live")
        assert not is_signed_in(page), "a token is of one tab"
        sign_in(page, awaiting="7 dead letters match")
        press(page, "#dead-groups tbody button")
        eventually(lambda: dead_status(page) == "5 dead letters match")
        press(page, "[data-verb=delete][data-which=all]")
        press(page, "#ask-yes")
        eventually(lambda: dead_status(page) == "5 of 5 deleted")

        page.switch_to.window(first)
        eventually(lambda: [row[2] for row in rows(page, "operations")] == ["dead letters delete"])
        assert rows(page, "operations")[0][5:] == ["done", "5 of 5 dead letters deleted"]
        press(page, "#ask-yes")
        eventually(lambda: "7" in dead_status(page) and "2" in dead_status(page) and "match" in dead_status(page))
        assert (storage.count_dead(), storage.stats().pending) == (2, 0), "nothing was requeued"
        eventually(lambda: [row[5] for row in rows(page, "operations")] == ["failed", "done"])
        page.switch_to.window(page.window_handles[-1])


@pytest.mark.shows("the page: posts, fetches and frames of another origin change and read nothing")
def test_another_origin_can_do_nothing(page: webdriver.Chrome, site: Site, storage: FileStorage) -> None:
    sign_in(page, awaiting="7 dead letters match")
    foreign = FOREIGN.format(url=site.url, token=TOKEN)
    with serving(lambda: ("text/html", foreign.encode())) as address, second_tab(page, f"http://{address}/"):
        eventually(lambda: page.title not in ("", "foreign"))
        assert page.title == "opaque rejected rejected rejected", "an opaque answer cannot be read"
        page.switch_to.frame("framed")
        assert page.find_elements(By.ID, "title") == []
        page.switch_to.default_content()
        page.switch_to.frame("into")
        assert "deleted" not in page.find_element(By.TAG_NAME, "body").text
        page.switch_to.default_content()

    logged(page)  # of the rejected request
    assert (storage.count_dead(), site.operations.all()) == (7, [])
    assert is_signed_in(page), "what it did concerns nobody who is signed in"


@pytest.mark.shows("the page: the token is in no address, cookie or storage")
def test_nothing_keeps_the_token(page: webdriver.Chrome, site: Site) -> None:
    sign_in(page, awaiting="7 dead letters match")
    press(page, "#dead-groups tbody button")
    eventually(lambda: dead_status(page) == "5 dead letters match")
    assert TOKEN not in kept(page)
    databases = "indexedDB.databases().then(all => arguments[arguments.length - 1](all.length))"
    assert page.execute_async_script(databases) == 0

    page.refresh()
    eventually(lambda: text(page, "link") == "live")
    assert not is_signed_in(page)
    sign_in(page)
    eventually(lambda: is_signed_in(page))
    page.get("about:blank")
    page.back()
    eventually(lambda: text(page, "link") == "live")
    assert (page.current_url, is_signed_in(page)) == (f"{site.url}/", False)
    assert TOKEN not in kept(page)


@pytest.mark.shows("the page: axe-core finds no serious problem in light, dark, narrow, wide, signed in")
def test_axe_finds_nothing_serious(page: webdriver.Chrome) -> None:
    assert findings(page) == []
    sign_in(page, awaiting="7 dead letters match")
    press(page, "#dead-list tbody button")
    eventually(page.find_element(By.ID, "dead-one").is_displayed)
    assert rows(page, "dead-groups") != []
    for width, theme in ((390, "light"), (1440, "dark")):
        with emulated(page, width, 1000, theme):
            assert findings(page) == []
            assert page.execute_script("return document.documentElement.scrollWidth") <= width
    press(page, "[data-verb=send][data-which=all]")
    assert findings(page) == []
    press(page, "#ask button[value=no]")
