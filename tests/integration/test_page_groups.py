"""An exporter's page lists every group of the clusters in a real browser: searched, sorted, read; ten thousand too."""

from collections.abc import Iterator

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl.status import Status
from tests.conftest import eventually
from tests.integration.page_site import findings, rows, text, visited
from tests.served_groups import EVIL, Latest, cluster, group, serving_groups

MANY = 10_000


@pytest.fixture
def opened(chromium: webdriver.Chrome) -> Iterator[tuple[Latest, webdriver.Chrome]]:
    late = group("billing", 90, 2.0, Status.WARN, "it falls behind")
    latest: Latest = {
        "main": cluster("main", late, group("audit", 0), group(EVIL, 7)),
        "eu": cluster("eu", group("billing", 5)),
    }
    with serving_groups(latest) as url, visited(chromium, url, lambda: rows(chromium, "groups") != []):
        yield latest, chromium


def names(page: webdriver.Chrome) -> list[str]:
    return [row[0] for row in rows(page, "groups")]


@pytest.mark.shows("the exporter's page: groups can be searched, sorted and read")
def test_groups_are_searched_and_sorted(opened: tuple[Latest, webdriver.Chrome]) -> None:
    latest, page = opened
    evil = EVIL.replace("\u202e", "\\u202e")
    assert names(page) == ["billing", evil, "billing", "audit"], "the worst first"
    assert rows(page, "groups")[0][9] == "1 of 1 partitions warn: orders-0; it falls behind"
    assert text(page, "groups-status").startswith("4 of 4 groups · 1 warn, 3 ok · lag 102 · main collected ")
    assert findings(page) == []

    page.find_element(By.ID, "groups-find").send_keys("bill")
    eventually(lambda: names(page) == ["billing", "billing"])
    assert page.current_url.endswith("#find=bill")
    page.find_element(By.CSS_SELECTOR, "#groups-sort [value=group]").click()
    eventually(lambda: [row[1] for row in rows(page, "groups")] == ["eu", "main"])

    page.find_element(By.CSS_SELECTOR, "#groups a").click()
    eventually(lambda: text(page, "group-title") == "eu / billing")
    eventually(lambda: [row[0] for row in rows(page, "group-members")] == ["c", evil])
    assert [row[:4] for row in rows(page, "group-partitions")] == [["orders", "0", "ok", "5"]]
    assert findings(page) == []
    page.find_element(By.ID, "back").click()
    eventually(lambda: len(names(page)) == 4)
    assert page.title == "kctl exporter"

    latest["main"] = cluster("main", group("audit", 3))
    eventually(lambda: names(page) == ["billing", "audit"])


@pytest.mark.shows("the exporter's page: 10,000 groups are usable")
def test_ten_thousand_groups_are_no_delay(opened: tuple[Latest, webdriver.Chrome]) -> None:
    latest, page = opened
    latest["main"] = cluster("main", *(group(f"team-{number}", number) for number in range(MANY)))
    page.refresh()
    eventually(lambda: names(page)[:2] == [f"team-{MANY - 1}", f"team-{MANY - 2}"])

    took = page.execute_async_script(
        "const done = arguments[0], find = document.getElementById('groups-find'), began = performance.now();"
        "find.value = 'team-4711'; find.dispatchEvent(new Event('input'));"
        "const look = () => document.getElementById('groups').rows.length === 2"
        " ? done(performance.now() - began) : requestAnimationFrame(look); look()"
    )
    assert names(page) == ["team-4711"]
    assert took < 1000, "with a machine that does other things; by itself about 0.1 s"
