"""Operations on the page of a running fleet: a real master and its workers, a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from tests.conftest import eventually
from tests.fleet_snapshot import TOKEN
from tests.integration.conftest import TOPIC, Master, shared_master
from tests.integration.page_site import newest, press, rows, second_tab, sign_in, text
from tests.processes import stopped
from tests.servers.kafka_broker import KafkaBroker

SHOWN = "0=7,1=7"  # the offsets that the page shows after a seek to 7 of both workers' partitions


@pytest.fixture(scope="module")
def fleet(broker: KafkaBroker) -> Iterator[Master]:
    with shared_master(broker, TOKEN) as running:
        yield running


@pytest.fixture
def page(fleet: Master, chromium: webdriver.Chrome) -> Iterator[webdriver.Chrome]:
    eventually(lambda: fleet.states() == ["running", "running"])
    chromium.get(fleet.about["http_url"])
    yield chromium
    chromium.get("about:blank")


def may_act(page: webdriver.Chrome) -> None:
    sign_in(page)
    eventually(page.find_element(By.ID, "acting").is_displayed)


def choose(page: webdriver.Chrome, operation: str, **params: str | bool) -> None:
    page.execute_script(
        "const type = document.getElementById('operation-type'); type.value = arguments[0];"
        "type.dispatchEvent(new Event('change'))",
        operation,
    )
    for name, value in params.items():
        field = page.find_element(By.CSS_SELECTOR, f"#operation-params [name={name}]")
        field.click() if value is True else field.send_keys(str(value))


def submit(page: webdriver.Chrome) -> str:
    press(page, "#operation-submit")
    eventually(page.find_element(By.ID, "ask").is_displayed)
    asked = text(page, "ask-text")
    press(page, "#ask-yes")
    return asked


def outcome(page: webdriver.Chrome) -> str:
    return text(page, "operation-status")


@pytest.mark.shows("the page: a seek is previewed, run and listed")
def test_a_refusal_begins_nothing_and_a_seek_is_previewed_and_done(page: webdriver.Chrome, fleet: Master) -> None:
    before = fleet.ask("operations", of_master=True).result["rows"]
    may_act(page)
    choose(page, "drain", name="worker-9")
    submit(page)
    eventually(lambda: "worker-9" in outcome(page))
    assert fleet.ask("operations", of_master=True).result["rows"] == before

    choose(page, "seek", topic=TOPIC, to="7")
    press(page, "#operation-preview")
    eventually(lambda: outcome(page).startswith("it would be: "))
    previewed = outcome(page)

    asked = submit(page)

    assert asked == f"seek (topic {TOPIC}, to 7): {previewed}"
    eventually(lambda: outcome(page).startswith("seek: done: "))
    assert [newest(page, column) for column in (2, 3, 5)] == ["seek", f"topic={TOPIC} to={SHOWN}", "done"]
    assert newest(page, 4).endswith("(http)")
    assert fleet.ask("operations", of_master=True).result["rows"][0]["params"] == {"topic": TOPIC, "to": SHOWN}


@pytest.mark.shows("the page in two tabs: a seek with an outdated preview changes nothing and is shown again")
def test_a_seek_that_another_tab_has_overtaken_is_confirmed_again(page: webdriver.Chrome, fleet: Master) -> None:
    may_act(page)
    choose(page, "seek", topic=TOPIC, to="7")
    press(page, "#operation-submit")
    eventually(page.find_element(By.ID, "ask").is_displayed)
    with second_tab(page, fleet.about["http_url"]) as (first, second):
        may_act(page)
        choose(page, "seek", topic=TOPIC, to="3")
        submit(page)
        eventually(lambda: outcome(page).startswith("seek: done: "))

        page.switch_to.window(first)
        press(page, "#ask-yes")
        eventually(lambda: text(page, "ask-text").startswith(f"Meanwhile it has changed. seek (topic {TOPIC}, to 7)"))
        eventually(lambda: newest(page, 3) == f"topic={TOPIC} to=0=3,1=3")
        press(page, "#ask-yes")
        eventually(lambda: outcome(page).startswith("seek: done: "))
        assert newest(page, 3) == f"topic={TOPIC} to={SHOWN}"
        page.switch_to.window(second)


@pytest.mark.shows("the page: a rolling restart is watched and cancelled")
def test_a_rolling_restart_is_watched_and_one_is_cancelled(page: webdriver.Chrome, fleet: Master) -> None:
    before = {name: row["pid"] for name, row in fleet.status().items()}
    may_act(page)
    choose(page, "restart", all=True, rolling=True)
    submit(page)
    eventually(lambda: newest(page, 5) == "running")
    eventually(lambda: outcome(page).startswith("restart: done"))
    assert not {row["pid"] for row in fleet.status().values()} & set(before.values())

    with stopped([fleet.status()["worker-0"]["pid"]]):  # so that the restart does not end before the press
        submit(page)
        eventually(lambda: newest(page, 0) == "Cancel")
        press(page, "#operations tbody button")
        eventually(lambda: "cancelled by" in outcome(page))
    eventually(lambda: newest(page, 5) in ("failed", "unknown"), what="what had begun may still happen")


def test_no_row_moves_while_somebody_is_about_to_press_one(page: webdriver.Chrome, fleet: Master) -> None:
    may_act(page)
    fleet.ask("pause", topic=TOPIC)
    eventually(lambda: newest(page, 2) == "pause")
    reads = "return performance.getEntriesByName(location.origin + '/api/v1/operations').length"
    page.execute_script(
        "const cell = document.querySelector('#operations tbody td'); cell.tabIndex = -1;"
        "cell.focus({preventScroll: true})"
    )
    fleet.ask("resume", topic=TOPIC)
    seen = page.execute_script(reads)
    eventually(lambda: page.execute_script(reads) >= seen + 2)
    assert newest(page, 2) == "pause"

    page.execute_script("document.activeElement.blur()")
    eventually(lambda: newest(page, 2) == "resume")


@pytest.mark.shows("the page: a process has its log, stack, and settings without secrets")
def test_a_process_shows_its_log_its_stack_and_the_settings(page: webdriver.Chrome, fleet: Master) -> None:
    page.get(fleet.about["http_url"] + "#worker=worker-0")
    sign_in(page)
    eventually(page.find_element(By.ID, "process-log").is_displayed)
    evil = "<img src=x onerror=\"document.title='owned'\">"
    with Path(fleet.status()["worker-0"]["log"]).open("a") as log:
        log.write(f"2026 a line that was added {evil}\n")
    eventually(lambda: f"a line that was added {evil}" in text(page, "process-log"))
    assert page.find_elements(By.TAG_NAME, "img") == []
    choose(page, "restart")
    assert page.find_element(By.CSS_SELECTOR, "#operation-params [name=name]").get_attribute("value") == "worker-0"
    press(page, "#stack")
    eventually(lambda: "MainThread" in text(page, "process-stack"))
    press(page, "#process-settings summary")
    eventually(lambda: ["kafka.topics", f'["{TOPIC}"]'] in rows(page, "settings"))

    press(page, "#sign-out")
    eventually(lambda: not page.find_element(By.ID, "process-log").is_displayed())
    kept = "return ['process-log', 'process-stack'].map(id => document.getElementById(id).textContent)"
    assert (page.execute_script(kept), rows(page, "settings")) == (["", ""], [])
