"""The page's first screen in a real browser, on a telephone and on a desk."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from kctl.master.snapshot import FleetSnapshot, Reduced
from kctl.reduce.partitions import kafka_lag
from kctl.rows.workers import AgentState, WorkerRow, Workers
from kctl_agent.replies.block_size import StorageReply, TableReply
from kctl_agent.replies.workers import SinkerStats
from tests.conftest import eventually
from tests.fleet_snapshot import history_of, judged, partition, snapshot, worker
from tests.integration.page_site import Site, caption, charts, drawn, emulated, findings, number, rows, text
from tests.partitions import assessments_of, columns_of

HEIGHT = 900
MOST_NARROW_HEIGHT = 2500
TABLE = "s3://lake.example/orders"


@contextmanager
def on_a_screen(page: webdriver.Chrome, width: int) -> Iterator[None]:
    with emulated(page, width, HEIGHT):
        yield
        page.get("about:blank")


def fleet(partitions: int, handled: int = 0, storage: StorageReply | None = None) -> FleetSnapshot:
    whole = snapshot(partitions)
    of_partitions = columns_of(*(partition(each) for each in range(partitions)))
    processes = (
        WorkerRow("sinker-0", "sinker", AgentState.IDLE, age_seconds=0.1, sinker=SinkerStats(handled=handled)),
        WorkerRow("worker-0", "worker", AgentState.RUNNING, age_seconds=0.1),
    )
    ok = whole.assessments[0]
    return judged(
        replace(
            whole,
            offset_checker=Reduced(of_partitions),
            kafka_lag=kafka_lag(of_partitions),
            block_size=Reduced(storage or StorageReply(pending=7, processing=2, dead=3, bytes=512)),
            workers=Reduced(Workers(processes)),
            supervised=(worker("worker-0"),),
            assessments=assessments_of(*[ok] * partitions),
            group_assessment=replace(ok, reason="commits come"),
        )
    )


def tiles(page: webdriver.Chrome, name: str) -> list[str]:
    found: list[str] = page.execute_script(
        "return [...document.querySelectorAll(`#${arguments[0]} dt`)].map(each => each.textContent)", name
    )
    return found


def test_the_users_numbers_count_kafka_and_storage(chromium: webdriver.Chrome) -> None:
    with on_a_screen(chromium, 1440), Site(4, fleet="shop") as site:
        site.latest = fleet(4)
        chromium.get(site.url)
        eventually(lambda: text(chromium, "status") == "ok")
        site.collect(fleet(4, handled=500))

        eventually(lambda: number(chromium, "summary", "handled") not in ("-", "0.0/s"))

        assert text(chromium, "title") == "shop · main / g"
        assert chromium.title == "ok · shop · g · kctl"
        assert number(chromium, "summary", "messages waiting") == "33", "24 in Kafka, 9 in the storage"
        assert number(chromium, "summary", "dead letters") == "3"
        assert tiles(chromium, "kafka")[:5] == ["lag", "time lag", "growth", "caught up in", "generation"]

        site.collect(fleet(4, storage=StorageReply()))
        eventually(lambda: number(chromium, "summary", "messages waiting") == "-", what="a storage is not counted")
        assert (number(chromium, "kafka", "lag"), number(chromium, "summary", "dead letters")) == ("24", "-")

        behind = columns_of(*(partition(each)._replace(behind_transaction=3) for each in range(4)))
        site.collect(replace(fleet(4), offset_checker=Reduced(behind), kafka_lag=kafka_lag(behind)))
        eventually(lambda: tiles(chromium, "kafka")[:2] == ["lag", "behind open transactions"])
        assert number(chromium, "kafka", "behind open transactions") == "12"


@pytest.mark.shows("the page: 16 healthy partitions take less than 2,500 px of a telephone; more on request")
def test_a_telephone_lists_trouble_first(chromium: webdriver.Chrome) -> None:
    with on_a_screen(chromium, 390), Site(16) as site:
        site.latest = fleet(16)
        chromium.get(site.url)
        eventually(lambda: text(chromium, "shown") == "0 of 16 partitions; healthy ones are not shown")
        eventually(lambda: charts(chromium) == ["chart-lag", "chart-rates"])

        assert chromium.execute_script("return document.documentElement.scrollHeight") < MOST_NARROW_HEIGHT
        assert (rows(chromium, "partitions"), rows(chromium, "workers")) == ([], [])
        assert findings(chromium) == []
        assert text(chromium, "workers-status") == "0 of 2 processes; healthy ones are not shown"

        site.collect(snapshot(16))
        eventually(lambda: [row[1:3] for row in rows(chromium, "partitions")] == [["15", "stalled"]])

        chromium.find_element(By.ID, "all").click()
        eventually(lambda: (len(rows(chromium, "partitions")), len(rows(chromium, "workers"))) == (16, 2))
        eventually(lambda: len(charts(chromium)) == 5)


@pytest.mark.shows("the page: a table of mode lake has its rows, version, last commit, files and path")
def test_the_tiles_of_a_table_describe_it(chromium: webdriver.Chrome) -> None:
    table = TableReply(version=12, rows=119_200, files=9, small_files=4, last_commit_seconds=3.0)
    with on_a_screen(chromium, 1440), Site(4, table_uri=TABLE) as site:
        site.latest = fleet(4, storage=StorageReply(storage="t-1", dead=0, bytes=2048, table=table))
        chromium.get(site.url)
        eventually(lambda: tiles(chromium, "storage") != [])

        shown = {name: number(chromium, "storage", name) for name in tiles(chromium, "storage")}

        assert shown == {
            "rows": "119,200",
            "version": "12",
            "last commit": "3.0 s ago",
            "files": "9",
            "small files": "4",
            "size": "2.0 KiB",
            "path": TABLE,
        }
        assert number(chromium, "summary", "messages waiting") == "24", "a table holds no message that waits"


@pytest.mark.parametrize(("width", "seconds"), [(390, 3600), (1440, 86400)])
@pytest.mark.shows("the page: charts span the time for which there is data")
def test_new_charts_span_all_data(chromium: webdriver.Chrome, width: int, seconds: int) -> None:
    three_minutes = [running(fleet(4), step) for step in range(40)]
    site = Site(4)
    site.latest, site.history = three_minutes[-1], history_of(*three_minutes)
    with on_a_screen(chromium, width), site:
        chromium.get(f"{site.url}#range={seconds}")
        if width < 500:
            eventually(lambda: chromium.find_element(By.ID, "all").is_displayed())
            chromium.find_element(By.ID, "all").click()
        eventually(lambda: len(charts(chromium)) == 5)

        assert caption(chromium, "batch")[0].startswith("2.0 s")
        for chart in ("lag", "batch"):
            line = drawn(chromium, chart, "--line-0")
            assert (min(line) < 0.1, max(line) > 0.9) == (True, True)


def running(began: FleetSnapshot, step: int) -> FleetSnapshot:
    """The fleet after `step` times five seconds, one worker batch further each time."""
    processes = [replace(row, batches_total=step, last_batch_seconds=2.0) for row in began.workers.result.rows]
    return replace(
        began,
        workers=Reduced(Workers(tuple(processes))),
        taken_at=began.taken_at + 5 * step,
        taken_at_unix=began.taken_at_unix + 5 * step,
    )
