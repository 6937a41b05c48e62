"""Who may act on the page, in a real browser, and what is kept of a token."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl.http.access import AccessRights, Token
from kctl_agent.storage.file import FileStorage
from tests.conftest import eventually
from tests.fleet_snapshot import TOKEN
from tests.integration.dead_letters_page import decoder, page, press, sent, sign_in, site, status, storage
from tests.integration.page_site import Site, logged, rows, second_tab, text

__all__ = ["decoder", "page", "sent", "site", "storage"]

pytestmark = pytest.mark.timeout(120)

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


@contextmanager
def foreign_page(html: str) -> Iterator[str]:
    """On its own port: same site, another origin, which is as near as another user's page can come."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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

    eventually(lambda: text(page, "sign-status") == "signed out: the token is not the right one")
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
        eventually(lambda: status(page) == "5 dead letters match")
        press(page, "[data-verb=delete][data-which=all]")
        press(page, "#ask-yes")
        eventually(lambda: status(page) == "5 of 5 deleted")

        page.switch_to.window(first)
        eventually(lambda: [row[2] for row in rows(page, "operations")] == ["dead letters delete"])
        assert rows(page, "operations")[0][5:] == ["done", "5 of 5 dead letters deleted"]
        press(page, "#ask-yes")
        eventually(lambda: "7" in status(page) and "2" in status(page) and "match" in status(page))
        assert (storage.count_dead(), storage.stats().pending) == (2, 0), "nothing was requeued"
        eventually(lambda: [row[5] for row in rows(page, "operations")] == ["failed", "done"])
        page.switch_to.window(page.window_handles[-1])


@pytest.mark.shows("the page: posts, fetches and frames of another origin change and read nothing")
def test_another_origin_can_do_nothing(page: webdriver.Chrome, site: Site, storage: FileStorage) -> None:
    sign_in(page, awaiting="7 dead letters match")
    with foreign_page(FOREIGN.format(url=site.url, token=TOKEN)) as url, second_tab(page, url):
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
    eventually(lambda: status(page) == "5 dead letters match")
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
