"""Charts and views of the page in a real browser: drawn, followed, zoomed, kept by a link."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from kctl.master.snapshot import Reduced
from kctl_agent.replies.workers import Event
from tests.conftest import eventually
from tests.fleet_snapshot import TAKEN_AT, UNIX, partition
from tests.integration.page_site import Site, attribute, caption, charts, drawn, emulated, findings, rows, text, visited
from tests.partitions import columns_of
from tests.served_groups import cluster, group

Opened = tuple[Site, webdriver.Chrome]
EVIL = "<img src=x onerror=\"document.title='owned'\">\u202egnp"


@pytest.fixture
def opened(chromium: webdriver.Chrome) -> Iterator[Opened]:
    def is_drawn() -> bool:
        return charts(chromium) != [] and rows(chromium, "workers") != []

    # Chromium warns of reads from a canvas, as these tests do.
    with Site(3) as site, visited(chromium, site.url, is_drawn, "404", "getImageData"):
        yield site, chromium


def address(page: webdriver.Chrome) -> str:
    return page.current_url.partition("#")[2]


def later(site: Site, seconds: float, lag: int) -> None:
    sites = columns_of(*(partition(number, lag) for number in range(3)))
    latest = replace(site.latest, offset_checker=Reduced(sites), taken_at=TAKEN_AT + seconds)
    site.collect(replace(latest, taken_at_unix=UNIX - 2 + seconds), Event(UNIX - 5 + seconds, "rebalance", EVIL))


def follows(site: Site, page: webdriver.Chrome) -> None:
    def is_marked() -> bool:
        site.collect(site.latest)
        return len(drawn(page, "lag", "--mark")) > 10

    eventually(is_marked)


@pytest.mark.shows("the page: charts update and have marks, captions, a table, one cursor and zoom")
def test_charts_follow_and_zoom_and_a_link_keeps_the_view(opened: Opened) -> None:
    site, page = opened
    assert charts(page) == [f"chart-{name}" for name in ("lag", "lag-seconds", "rates", "batch", "memory")]
    assert caption(page, "lag") == ["12, from 3 to 15"]
    assert caption(page, "memory") == ["-"], "what is not known is no zero"
    assert len(drawn(page, "lag", "--line-0")) > 2
    assert drawn(page, "lag", "--mark") == []

    for seconds, lag in ((8, 20), (9, 10)):
        later(site, seconds, lag)
    follows(site, page)
    assert caption(page, "lag") == ["60 (most of 5 s), from 3 to 60"], "the fleet's number is 30 by now"
    page.execute_script("document.querySelectorAll('summary').forEach(each => each.click())")
    assert EVIL.replace("\u202e", "\\u202e") in text(page, "marks")
    table = "[...document.querySelectorAll('#chart-lag tbody td')].map(each => each.textContent)"
    eventually(lambda: page.execute_script(f"return {table}")[1:3] == ["30", "60"])

    plots = page.find_elements(By.CSS_SELECTOR, ".u-over")
    ActionChains(page).move_to_element(plots[0]).perform()
    moments = page.execute_script("return [...document.querySelectorAll('.when')].map(each => each.textContent)")
    assert len(set(moments)) == 1, "one cursor over all"
    assert len(moments[0]) == len("22:05:55Z")

    ActionChains(page).move_to_element(plots[0]).click_and_hold().move_by_offset(90, 0).release().perform()
    eventually(lambda: "until=" in address(page))
    zoomed = address(page)
    assert "range=900" not in zoomed
    page.refresh()
    eventually(lambda: charts(page) != [])
    assert address(page) == zoomed
    page.back()
    eventually(lambda: text(page, "range-text") == "live")


def test_each_range_and_subject_has_an_address(opened: Opened) -> None:
    site, page = opened
    page.find_element(By.CSS_SELECTOR, "[data-range='3600']").click()
    eventually(lambda: address(page) == "range=3600")
    assert attribute(page, "[data-range='3600']", "aria-pressed") == "true"
    page.find_element(By.CSS_SELECTOR, "#partitions a").click()
    eventually(lambda: address(page) == "topic=orders&range=3600")
    eventually(lambda: charts(page) == ["chart-lag", "chart-lag-seconds", "chart-rates"])
    assert not page.find_element(By.ID, "workers").is_displayed()
    page.find_element(By.CSS_SELECTOR, "#partitions tbody tr:nth-child(2) td:nth-child(2) a").click()
    eventually(lambda: text(page, "where") == "orders / 1")
    eventually(lambda: [row[1] for row in rows(page, "partitions")] == ["1"])
    page.find_element(By.ID, "back").click()
    eventually(lambda: len(charts(page)) == 5)

    site.collect(replace(site.latest, clusters=(cluster("main", group("audit", 7)),)))
    page.execute_script("location.hash = 'group=audit&cluster=main'")
    eventually(lambda: charts(page) == ["chart-lag", "chart-lag-seconds"])
    assert caption(page, "lag") == ["7, from 7 to 7"]

    page.get(page.current_url.partition("#")[0] + "#topic=unheard")
    eventually(lambda: "there is no such topic" in text(page, "charts-status"))
    assert charts(page) == []
    eventually(lambda: (rows(page, "partitions"), text(page, "shown")) == ([], "0 of 0 partitions"))
    assert text(page, "link") == "live", "nothing but the history is missing"


def test_a_process_has_its_view_and_none_is_wider_than_a_small_telephone(opened: Opened) -> None:
    _, page = opened
    page.find_element(By.CSS_SELECTOR, "#workers tbody tr:nth-child(2) a").click()
    eventually(lambda: text(page, "process-title") == "worker-0, worker")
    eventually(lambda: charts(page)[-1:] == ["chart-held"])
    assert charts(page) == ["chart-lag", "chart-lag-seconds", "chart-held"], "of what it does and what is known"
    assert "running" in text(page, "process-facts")
    assert {row[9] for row in rows(page, "partitions")} == {"worker-0"}
    assert text(page, "process-unsigned").startswith("Its log, its stack and its settings are for holders")

    with emulated(page, 360, 800):
        for view, where in (("worker=worker-0", "worker-0"), ("", ""), ("topic=orders", "orders")):
            page.execute_script("location.hash = arguments[0]", view)
            eventually(lambda where=where: text(page, "where") == where and charts(page) != [])
            assert page.execute_script("return document.documentElement.scrollWidth") <= 360


def test_axe_finds_nothing_serious_in_any_view(opened: Opened) -> None:
    site, page = opened
    later(site, 8, 20)
    follows(site, page)
    page.execute_script("document.querySelector('summary').click()")
    with emulated(page, theme="dark"):
        assert findings(page) == []
    page.execute_script("location.hash = 'worker=worker-0'")
    eventually(lambda: text(page, "process-title") == "worker-0, worker")
    with emulated(page, theme="light"):
        assert findings(page) == []
