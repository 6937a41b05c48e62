"""The page at `/` in a real browser: a fleet that changes, and every group of an exporter's clusters."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys

from kctl.hosts.hosts import Hosts
from kctl.hosts.roster import Host
from kctl.master.snapshot import Reduced
from kctl.rows.hosts import HostRow, HostsAnswer
from kctl.status import UNKNOWN, Assessment, Status
from kctl_agent.replies.workers import Event
from tests.conftest import eventually
from tests.fleet_snapshot import UNIX, healthy, judged, partition
from tests.integration.page_site import Site, attribute, findings, logged, number, rows, text, visited
from tests.partitions import assessments_of, columns_of
from tests.served_groups import EVIL, Latest, cluster, group, serving_groups


@pytest.fixture
def opened(chromium: webdriver.Chrome) -> Iterator[tuple[Site, webdriver.Chrome]]:
    def is_live() -> bool:
        return text(chromium, "link") == "live" and rows(chromium, "partitions") != []

    with Site(4) as site, visited(chromium, site.url, is_live):
        yield site, chromium


Opened = tuple[Site, webdriver.Chrome]


@pytest.mark.shows("the page: live numbers, lost connection, keyboard, themes, no foreign markup")
def test_the_page_shows_fleet_partitions_storage_and_events_as_text_never_as_markup(opened: Opened) -> None:
    site, page = opened
    site.collect(site.latest, Event(UNIX, "rebalance", "generation 2 -> 3, 2 members"))
    eventually(lambda: "generation 2 -> 3" in text(page, "events"))

    assert (text(page, "title"), text(page, "status"), text(page, "reason")) == (
        "main / g",
        "failing",
        "1 of 3 partitions stalled since 2023-11-14T22:13:18Z",
    )
    also = "degraded 1 of 2 workers has not worked since 2023-11-14T22:13:18Z: worker-1 is in backoff"
    assert text(page, "also") == f"{also}; `kctl logs worker-1` shows more"
    assert [number(page, "kafka", name) for name in ("lag", "time lag", "members", "worst partition")] == [
        "18",
        "2.5 s",
        "2",
        "stalled",
    ]
    assert [row[:5] for row in rows(page, "partitions")] == [
        ["orders", "0", "ok", "6", "2.5 s"],
        ["orders", "1", "ok", "6", "2.5 s"],
        ["orders", "2", "ok", "6", "2.5 s"],
        ["orders", "3", "stalled", "-", "-"],
    ]
    assert [row[0] for row in rows(page, "workers")] == ["sinker-0", "worker-0"]
    assert [number(page, "storage", name) for name in ("pending", "dead", "size")] == ["7", "-", "512 B"]
    assert text(page, "missing") == "no answer from worker-1"
    line = "#partitions svg.line"
    assert attribute(page, line, "aria-label") == "lag of the last 15 minutes: from 1 to 6, at most 6"
    assert attribute(page, f"{line} path", "d").count("L") == 2, "three known values, one line"

    evil, shown = (f"<img src=x onerror=document.title='broken'>{mark}" for mark in ("\u202e", "\\u202e"))
    bad = Assessment(Status.WARN, evil)
    partitions = columns_of(*(partition(n, worker=evil)._replace(topic=evil) for n in range(4)))
    latest = replace(site.latest, group=evil, group_assessment=bad, offset_checker=Reduced(partitions))

    site.collect(judged(latest), Event(UNIX, evil, evil))

    eventually(lambda: shown in text(page, "also"))
    assert text(page, "title") == f"main / {shown}"
    eventually(lambda: shown in text(page, "events"))
    eventually(lambda: [row[0] for row in rows(page, "partitions")] == [shown] * 4)
    assert {row[9] for row in rows(page, "partitions")} == {shown}
    assert page.find_elements(By.CSS_SELECTOR, "img") == []
    assert "broken" not in page.title.replace(shown, "")


def test_a_lost_connection_is_shown_and_afterwards_new_snapshots_come_by_themselves(opened: Opened) -> None:
    site, page = opened
    before = text(page, "age")
    site.collect(site.latest)
    eventually(lambda: text(page, "age") not in ("", before))
    page.execute_cdp_cmd("Network.enable", {})
    offline = {"offline": True, "latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
    page.execute_cdp_cmd("Network.emulateNetworkConditions", offline)
    try:
        eventually(lambda: text(page, "link").startswith("not connected"))
        assert [row[3] for row in rows(page, "partitions")] == ["6", "6", "6", "-"], (
            "the last numbers stay, with their age"
        )
    finally:
        page.execute_cdp_cmd("Network.emulateNetworkConditions", {**offline, "offline": False})
    logged(page)  # of the failed fetch

    row = partition(0, lag=9)
    offsets = replace(site.latest.offset_checker, result=columns_of(row))
    ok = Assessment(Status.OK, "all is well", 1.0, 0.0, None)

    site.collect(
        judged(replace(healthy(), offset_checker=offsets, assessments=assessments_of(ok), group_assessment=ok))
    )

    eventually(lambda: [row[3] for row in rows(page, "partitions")] == ["9"])
    assert (text(page, "status"), text(page, "reason"), page.title) == (
        "ok",
        "everything is running; all is well; 7 messages wait in the storage",
        "ok · g · kctl",
    )
    for worker in (None, "worker-1"):
        offsets = replace(offsets, result=columns_of(row._replace(worker=worker)))
        site.collect(replace(site.latest, offset_checker=offsets))
        eventually(lambda worker=worker: [row[9] for row in rows(page, "partitions")] == [worker or "-"])


def test_what_is_old_is_not_live_and_no_headline_of_now(chromium: webdriver.Chrome) -> None:
    """The stream stays open without data, as with a frozen master."""
    with Site(4, max_age_seconds=7.0) as site:  # two of them have passed when it is collected
        site.latest = judged(healthy())
        chromium.get(site.url)
        eventually(lambda: (text(chromium, "status"), text(chromium, "link")) == ("ok", "live"))

        eventually(lambda: text(chromium, "status") == "unknown", 10)

        assert text(chromium, "reason").startswith("no data since 2")
        assert (text(chromium, "link"), chromium.title) == ("not connected", "unknown · g · kctl")
        site.collect(judged(healthy()))
        eventually(lambda: (text(chromium, "status"), text(chromium, "link")) == ("ok", "live"))
        chromium.get("about:blank")


def test_the_page_is_used_with_the_keyboard_alone(opened: Opened) -> None:
    _, page = opened
    body = page.find_element(By.TAG_NAME, "body")

    assert [each.text for each in page.find_elements(By.CSS_SELECTOR, "#sections button")][1:3] == [
        "Workers",
        "Lag per partition",
    ]
    page.find_element(By.CSS_SELECTOR, "#sections button:nth-child(3)").send_keys(Keys.ENTER)
    assert focused(page).text == "Lag per partition"

    body.send_keys("/")
    page.switch_to.active_element.send_keys("orders-3")
    assert [row[1] for row in rows(page, "partitions")] == ["3"]
    page.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert len(rows(page, "partitions")) == 4
    page.switch_to.active_element.send_keys(Keys.TAB)
    focused(page).send_keys(Keys.SPACE)
    assert [row[2] for row in rows(page, "partitions")] == ["stalled"], "only what is in trouble"
    focused(page).send_keys(Keys.SPACE)
    for _ in range(2):
        focused(page).send_keys(Keys.TAB)
    assert focused(page).text == "partition"
    focused(page).send_keys(Keys.ENTER)
    assert [row[1] for row in rows(page, "partitions")] == ["0", "1", "2", "3"]
    focused(page).send_keys(Keys.ENTER)
    assert [row[1] for row in rows(page, "partitions")] == ["3", "2", "1", "0"]
    assert focused(page).find_element(By.XPATH, "..").get_attribute("aria-sort") == "descending"


def focused(page: webdriver.Chrome) -> Any:
    return page.switch_to.active_element


@pytest.mark.shows("the page: a hidden tab loads each tenth snapshot")
def test_a_hidden_tab_polls_less_often(opened: Opened) -> None:
    site, page = opened

    def collect(lag: int) -> None:
        offsets = replace(site.latest.offset_checker, result=columns_of(partition(0, lag=lag)))
        latest = replace(site.latest, offset_checker=offsets, assessments=assessments_of(UNKNOWN))
        site.collect(latest, Event(UNIX, "rebalance", f"lag {lag}"))
        eventually(lambda: f"lag {lag}" in text(page, "events"))

    def lags() -> list[str]:
        return [row[3] for row in rows(page, "partitions")]

    hidden = "Object.defineProperty(document, 'hidden', {configurable: true, get: () => arguments[0]});"
    page.execute_script(hidden.replace("arguments[0]", "true"))
    collect(3)
    eventually(lambda: lags() == ["3"])
    asked = "return performance.getEntriesByName(location.origin + '/api/v1/status').length"
    before = page.execute_script(asked)
    for lag in (4, 5, 6):
        collect(lag)
    assert (page.execute_script(asked), lags()) == (before, ["3"])

    show = "document.dispatchEvent(new Event('visibilitychange'))"
    page.execute_script(hidden.replace("arguments[0]", "false") + show)
    eventually(lambda: lags() == ["6"])


def test_of_very_many_partitions_those_in_trouble_are_shown(chromium: webdriver.Chrome) -> None:
    with Site(2500) as site:
        chromium.get(site.url)
        eventually(lambda: text(chromium, "shown") == "500 of 2500 partitions")
        assert rows(chromium, "partitions")[0][1:3] == ["2499", "stalled"]
        chromium.get("about:blank")


@pytest.mark.shows("the page: hosts, which are missing since when and why, a link to each")
def test_the_hosts_of_a_fleet_are_listed_and_linked(chromium: webdriver.Chrome) -> None:
    hosts = (
        HostRow("node-1", "here", "https://node-1.example:9750", "0.2.0", (1, 2)),
        HostRow("node-2", "silent", "https://node-2.example:9750", "0.2.0", (1, 2), UNIX, "it did not answer"),
        HostRow("node-3", "refused", "javascript:document.title='owned'", reason="<b>\u202eits address</b>"),
    )
    answer = HostsAnswer("node-1", "node-2", 2, hosts, 0.5)
    seen = SimpleNamespace(answer=lambda: answer, me=Host("node-1", "https://node-1.example:9750", 1))
    with Site(2, hosts=cast("Hosts", seen)) as site:
        chromium.get(site.url)
        eventually(lambda: rows(chromium, "hosts") != [])
        assert [row[:4] for row in rows(chromium, "hosts")] == [
            ["node-1", "here", "-", "https://node-1.example:9750"],
            ["node-2", "silent", "2023-11-14T22:13:20Z", "https://node-2.example:9750"],
            ["node-3", "refused", "-", "javascript:document.title='owned'"],
        ]
        assert [row[5] for row in rows(chromium, "hosts")] == ["-", "it did not answer", "<b>\\u202eits address</b>"]
        assert text(chromium, "hosts-status") == "led by node-2"
        links = chromium.find_elements(By.CSS_SELECTOR, "#hosts a")
        assert [each.get_attribute("href") for each in links] == ["https://node-2.example:9750/"]
        chromium.get("about:blank")


# ---- the groups of an exporter


MANY = 10_000
OfGroups = tuple[Latest, webdriver.Chrome]


@pytest.fixture
def of_groups(chromium: webdriver.Chrome) -> Iterator[OfGroups]:
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
def test_groups_are_searched_and_sorted(of_groups: OfGroups) -> None:
    latest, page = of_groups
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
def test_ten_thousand_groups_are_no_delay(of_groups: OfGroups) -> None:
    latest, page = of_groups
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
