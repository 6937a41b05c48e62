from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from importlib import resources

import httpx
import pytest

from kctl.http.access import AccessRights
from kctl.http.groups_api import groups_app
from tests.fleet_snapshot import TOKENS, ask, client_of, snapshot
from tests.served_groups import source_of_groups

PAGE = resources.files("kctl.http").joinpath("page")
VENDORED = {
    "uplot.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uplot.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "uplot.LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
}
"""`dist/uPlot.esm.js`, `dist/uPlot.min.css` and `LICENSE` of uplot-1.6.32.tgz; npm lists its integrity as
sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==."""
MOST_LINES, MOST_COMPRESSED = 2000, 150_000
GZIP = {"accept-encoding": "gzip"}
NO_FILES = "index.html", "..%2fpages.py", "vendor/uplot.LICENSE"


def own_files() -> Iterator[tuple[str, str]]:
    for each in PAGE.iterdir():
        if each.is_file():
            yield each.name, each.read_text(encoding="utf-8")


def addresses(html: str) -> list[str]:
    return re.findall(r'(?:href|src)="(/assets/[^"]+)"', html)


def test_what_is_vendored_is_what_was_released_and_the_page_is_small_enough_to_be_read() -> None:
    vendor = PAGE.joinpath("vendor")
    assert {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in vendor.iterdir()} == VENDORED
    assert sum(text.count("\n") for _, text in own_files()) <= MOST_LINES


@pytest.mark.shows("the page has under 150 kB compressed, cacheable files, none from elsewhere")
async def test_all_is_served_compressed_and_kept_and_small() -> None:
    unread = AccessRights(is_loopback=False, tokens=TOKENS)
    async with client_of(snapshot()) as asking:
        page = await asking.get("/", headers=GZIP)
        root = addresses(page.text)[0].rsplit("/vendor/", 1)[0]
        names = [name for name, _ in own_files() if name != "index.html"] + ["vendor/uplot.js", "vendor/uplot.css"]
        served = {name: await asking.get(f"{root}/{name}", headers=GZIP) for name in names}
        plain = await asking.get(f"{root}/main.js", headers={"accept-encoding": "identity"})
        wrong = "/assets/0000000000000000/main.js", *(f"{root}/{name}" for name in NO_FILES)
        others = [(await asking.get(path)).status_code for path in wrong]

    assert {each.status_code for each in served.values()} == {200}
    assert {each.headers["cache-control"] for each in served.values()} == {"private, max-age=31536000, immutable"}
    assert {each.headers["content-type"] for each in served.values()} == {
        "text/javascript; charset=utf-8",
        "text/css; charset=utf-8",
    }
    assert others == [404] * 4, "another content or file has no address"
    assert (await ask(snapshot(), "/assets/any/main.js", access=unread)).status_code == 401
    assert "content-encoding" not in plain.headers
    assert plain.text == served["main.js"].text
    assert sum(int(each.headers["content-length"]) for each in (page, *served.values())) < MOST_COMPRESSED
    assert sum(len(gzip.compress(each.content)) for each in served.values()) < MOST_COMPRESSED


async def test_no_script_stands_in_the_page_and_none_of_elsewhere_may_run() -> None:
    page = await ask(snapshot(), "/")

    policy = page.headers["content-security-policy"]
    assert "script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'" in policy
    assert re.findall(r"<script(?![^>]*src=)|<style|style=|\son[a-z]+=|javascript:", page.text) == []
    code = "".join(text for name, text in own_files() if name.endswith(".js"))
    writing = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|https?://(?!www\.w3\.org)"
    assert re.findall(f"{writing}|localStorage|sessionStorage|document\\.cookie", code) == []


async def test_an_exporter_serves_the_same_page_for_its_groups_alone() -> None:
    transport = httpx.ASGITransport(groups_app(source_of_groups(dict), AccessRights()).guarded)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as asking:
        page = await asking.get("/")
        assert 'data-serves="groups"' in page.text
        assert (await asking.get(addresses(page.text)[-1])).status_code == 200
