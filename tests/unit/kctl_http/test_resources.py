import asyncio
import fnmatch
import gzip
import hashlib
import re
import threading
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import httpx
import pytest

from kctl.groups.snapshot import ClusterSnapshot
from kctl.http.access import AccessRights
from kctl.http.api.lists import _BYTES
from kctl.http.groups_api import groups_app
from kctl.kafka.groups import Group
from kctl.master.events import EventFeed
from kctl.master.snapshot import FleetSnapshot
from kctl.status import Status
from kctl_agent.replies.workers import Event
from tests.fleet_snapshot import TOKEN, TOKENS, UNIX, ask, client_of, history_of, snapshot, source_of
from tests.served_groups import Latest, cluster, group, source_of_groups

PATH = "/api/v1/history"


async def test_the_history_of_the_fleet_comes_in_columns_with_its_marks() -> None:
    later = replace(snapshot(), taken_at=1005.0, taken_at_unix=UNIX + 3)
    feed = EventFeed()
    kinds = ("rebalance", "state", "operation", "rewound")
    feed.publish(Event(UNIX, kind, f"a {kind}", worker="worker-0") for kind in kinds)
    source = source_of(later, history=history_of(snapshot(), later), feed=feed)

    body = (await ask(source, PATH)).json()

    assert (body["began_at"], body["first_at"], body["step_seconds"]) == (UNIX - 2, UNIX - 900, 5.0)
    assert body["series"]["lag"]["most"][-2:] == body["series"]["lag"]["least"][-2:] == [12.0, 12.0]
    assert body["series"]["lag"]["most"][0] is None, "before the master was started"
    assert [(each["kind"], each["worker"]) for each in body["marks"]] == [
        ("rebalance", "worker-0"),
        ("operation", "worker-0"),
        ("rewound", "worker-0"),
    ]
    assert (await ask(source, f"{PATH}?until={UNIX - 1}")).json()["marks"] == []


METRICS = {"topic=orders": 4, "topic=orders&partition=1": 4, "worker=worker-0&seconds=86400": 7, "seconds=3600": 7}
MISSING = "topic=unheard", "topic=orders&partition=77", "worker=nobody", "partition=1", "worker=worker-0&topic=orders"
INVALID = "seconds=nan", "seconds=1e9", "until=inf"


async def test_each_subject_has_its_metrics_and_missing_or_invalid_values_are_rejected() -> None:
    async with client_of(snapshot()) as client:
        found = {query: (await client.get(f"{PATH}?{query}")).json()["series"] for query in METRICS}
        codes = [(await client.get(f"{PATH}?{query}")).status_code for query in (*MISSING, *INVALID)]

    assert {query: len(series) for query, series in found.items()} == METRICS
    assert codes == [404] * len(MISSING) + [400] * len(INVALID)


async def test_a_group_is_found_by_cluster_and_name_and_one_that_is_not_kept_has_a_sentence() -> None:
    with_groups = replace(snapshot(), clusters=(cluster("main", group("audit", 7)),))
    source = source_of(with_groups, history=history_of(with_groups))

    body = (await ask(source, f"{PATH}?group=audit&cluster=main")).json()
    missing = await ask(source, f"{PATH}?group=audit&cluster=eu")

    assert ([*body["series"]], body["marks"]) == (["lag", "lag_seconds"], [])
    assert body["series"]["lag"]["most"][-1] == 7.0
    assert (missing.status_code, "20 groups with the most lag" in missing.text) == (404, True)


HOLDER = {"authorization": f"Bearer {TOKEN}"}
ACCESS = AccessRights(tokens=TOKENS)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "worker-0.log"
    path.write_text("one\ntwo\nhalf a li")
    return path


def fleet(log: Path) -> FleetSnapshot:
    whole = snapshot()
    return replace(whole, supervised=(replace(whole.supervised[0], log=str(log)),))


def read(log: Path, query: str = "", name: str = "worker-0") -> httpx.Response:
    return asyncio.run(_asked(log, query, name))


async def _asked(log: Path, query: str, name: str) -> httpx.Response:
    return await ask(fleet(log), f"/api/v1/logs/{name}{query}", access=ACCESS, headers=HOLDER)


def test_a_log_is_read_in_whole_lines_and_goes_on_where_it_was_left(log: Path) -> None:
    first = read(log).json()
    assert first == {"text": "one\ntwo\n", "next": 8, "is_continued": False}

    with log.open("a") as more:
        more.write("ne\nthree\n")
    assert read(log, "?after=8").json() == {"text": "half a line\nthree\n", "next": 26, "is_continued": True}
    assert read(log, "?after=26").json() == {"text": "", "next": 26, "is_continued": True}


def test_after_a_rotation_or_a_flood_the_end_of_the_log_is_read_and_of_no_log_nothing(log: Path) -> None:
    log.write_text("rotated\n")
    assert read(log, "?after=5000").json() == {"text": "rotated\n", "next": 8, "is_continued": False}

    log.write_text("x" * 60 + "\n" + ("y" * 99 + "\n") * 2000)
    flooded = read(log, "?after=0").json()
    assert (flooded["is_continued"], flooded["next"], flooded["text"][:3]) == (False, 200_061, "yyy")
    assert _BYTES - 200 < len(flooded["text"]) < _BYTES

    log.unlink()
    assert read(log).json()["text"] == ""
    assert read(log, name="worker-9").status_code == 404
    log.mkdir()
    assert read(log).json()["error"]["message"].startswith("the log of worker-0 cannot be read: ")


@pytest.mark.shows("logs and settings over HTTP need an operations token, on loopback too")
@pytest.mark.parametrize("path", ["/api/v1/logs/worker-0", "/api/v1/settings"])
async def test_who_only_reads_sees_neither_logs_nor_settings(log: Path, path: str) -> None:
    reader = replace(TOKENS[0], may_act=False)
    access = AccessRights(tokens=(reader,))
    assert (await ask(fleet(log), path)).status_code == 403
    assert (await ask(fleet(log), path, access=ACCESS)).status_code == 401
    assert (await ask(fleet(log), path, access=access, headers=HOLDER)).status_code == 403
    source = source_of(fleet(log), settings=lambda: {"kafka": {"group": "g"}})
    shown = await ask(source, "/api/v1/settings", access=ACCESS, headers=HOLDER)
    assert (shown.json(), shown.headers["cache-control"]) == ({"settings": {"kafka": {"group": "g"}}}, "no-store")


def client_of_groups(latest: Latest, **source: Any) -> httpx.AsyncClient:
    app = groups_app(replace(source_of_groups(lambda: latest), **source), AccessRights()).guarded
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def asked(path: str, *clusters: ClusterSnapshot, **params: Any) -> httpx.Response:
    async with client_of_groups({each.cluster: each for each in clusters}) as client:
        return await client.get(path, params=params)


MAIN = cluster(
    "main",
    group("a", 6, growth=1.0),
    group("b", None, status=Status.UNKNOWN),
    group("c", 9, growth=-3.0, status=Status.STALLED),
)
SORTED = {
    "group": ["a", "b", "c"],
    "lag": ["c", "a", "b"],
    "growth": ["a", "c", "b"],
    "lag_seconds": ["a", "b", "c"],
    "status": ["c", "b", "a"],
}


@pytest.mark.parametrize(("sort", "expected"), SORTED.items())
async def test_groups_are_sorted_as_asked_and_what_is_not_known_comes_last(sort: str, expected: list[str]) -> None:
    body = (await asked("/api/v1/groups", MAIN, cluster("other", group("d", 1)), sort=sort, cluster="main")).json()

    assert [row["group"] for row in body["rows"]] == expected


@pytest.mark.shows("patterns that callers send do not stay in memory")
async def test_long_patterns_are_rejected_and_none_is_kept() -> None:
    fits = await asked("/api/v1/groups", MAIN, group=["a*" + "*" * 298, "b"])
    refused = await asked("/api/v1/groups", MAIN, group=["a", "b" * 301])

    assert [row["group"] for row in fits.json()["rows"]] == ["a", "b"]
    message = "query.group.1: String should have at most 300 characters"
    assert refused.status_code == 400
    assert refused.json()["error"] == {"code": "bad_params", "message": message, "retriable": False}

    kept = fnmatch._compile_pattern.cache_info().currsize  # type: ignore[attr-defined]

    await asked("/api/v1/groups", MAIN, group=[f"sent-{number}-*" for number in range(20)])

    assert fnmatch._compile_pattern.cache_info().currsize == kept  # type: ignore[attr-defined]


async def test_a_parameter_that_does_not_exist_is_rejected_and_the_nearest_is_named() -> None:
    refused = [
        (await asked(path, MAIN, **{name: "1"})).json()["error"]["message"]
        for path, name in (("/api/v1/groups", "grop"), ("/api/v1/groups/a", "zzz"))
    ]

    assert refused == [
        "query.grop: the parameter does not exist; the nearest is group",
        "query.zzz: the parameter does not exist",
    ]


@pytest.mark.shows("brokers are asked for members of at most two groups at a time")
async def test_only_a_few_concurrent_callers_reach_the_brokers_and_the_others_are_rejected() -> None:
    began, may_end = threading.Semaphore(0), threading.Event()

    def describe(_cluster: str, name: str) -> Group:
        began.release()
        assert may_end.wait(10)
        return Group(name, coordinator=1, state="stable")

    async with client_of_groups({"main": MAIN}, describe=describe) as client:
        asking = [asyncio.create_task(client.get("/api/v1/groups/a")) for _ in range(2)]
        for _ in asking:
            assert await asyncio.to_thread(began.acquire, timeout=10)
        refused = [await client.get("/api/v1/groups/b") for _ in range(20)]
        listed = await client.get("/api/v1/groups")
        may_end.set()
        answered = [await each for each in asking]

        assert {(each.status_code, each.json()["error"]["code"]) for each in refused} == {(503, "busy")}
        assert [each.status_code for each in (listed, *answered, await client.get("/api/v1/groups/b"))] == [200] * 4


async def test_a_group_is_found_by_any_id_and_by_its_cluster_if_two_have_it() -> None:
    other = cluster("other", replace(group("a", 77), cluster="other"))

    refused = await asked("/api/v1/groups/a", MAIN, other)
    named = await asked("/api/v1/groups/a", MAIN, other, cluster="other")

    assert (refused.status_code, "main, other" in refused.json()["error"]["message"]) == (400, True)
    assert (named.json()["cluster"], named.json()["lag"]) == ("other", 77)

    response = await asked("/api/v1/groups/a%2Fb%20%22c%22", cluster("main", group('a/b "c"', 1)))

    assert response.json()["group"] == 'a/b "c"'


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
    async with client_of_groups({}) as asking:
        page = await asking.get("/")
        assert 'data-serves="groups"' in page.text
        assert (await asking.get(addresses(page.text)[-1])).status_code == 200
