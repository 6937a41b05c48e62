import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from kctl.dead_letters.workbench import Attend, Workbench
from kctl.errors import OperationRefused, TopicMissing
from kctl.http.access import AccessRights, Token
from kctl.master.operations.operation_log import OperationLog
from kctl_agent.errors import StorageError
from kctl_agent.message import Message
from kctl_agent.storage import numbered_dead_letters
from kctl_agent.storage.base import DeadLetterStore, Progress, StorageUnusable, silent
from kctl_agent.storage.claim import DeadLetter, DeadLetterGroup, DeadLetterPage
from kctl_agent.storage.file import FileStorage
from kctl_agent.storage.selection import EVERYTHING, Selection
from tests.conformance.dead import TRACE
from tests.fleet_snapshot import TOKEN, serving, snapshot, source_of
from tests.stranger import needs_root
from tests.unit.kctl_http.raw_requests import status_for_nobody

READ_TOKEN = "0123456789abcdef-read"
ACCESS = AccessRights(tokens=(Token(TOKEN, "ann", may_act=True), Token(READ_TOKEN)))
BEARER = {"authorization": f"Bearer {TOKEN}"}
PATHS = ("", "/groups", "/export", "/1", "/", "?limit=5")


class Bench:
    """Seven dead letters: the handler rejected two and failed at five."""

    def __init__(self, folder: Path) -> None:
        self.audit_log = folder / "operations.jsonl"
        self.sent: list[DeadLetter] = []  # to the topic `parked`
        self.storage = FileStorage(folder / "storage.sqlite")
        self.storage.prepare()
        odd = Message(
            "t", 0, 0, b"\xff\x00", b'{"id": [1, "k\xc3\xa4se"]}', 1_700_000_000_000, (("h", b"1"), ("n", None)), 3
        )
        self.storage.dead_letter([odd, Message("t", 0, 1, None, None, 0)], "no such customer")
        self.storage.dead_letter([Message("t", 1, n, f"k{n}".encode(), b"v%d" % n, 0) for n in range(5)], TRACE)

    def workbench(self, store: DeadLetterStore | None = None, *attend: Attend) -> Workbench:
        def sent(dead_letters: list[DeadLetter]) -> list[DeadLetter]:
            self.sent.extend(dead_letters)
            return dead_letters

        @contextmanager
        def sending(topic: str) -> Iterator[Callable[[list[DeadLetter]], list[DeadLetter]]]:
            if topic != "parked":
                raise TopicMissing(f"topic {topic} does not exist")
            yield sent

        return Workbench(lambda: nullcontext(store or self.storage), lambda: self.audit_log, sending, *attend)

    @asynccontextmanager
    async def client(
        self, workbench: Workbench | None = None, access: AccessRights = ACCESS, **source: Any
    ) -> AsyncIterator[httpx.AsyncClient]:
        found = source_of(snapshot(), dead_letters=workbench or self.workbench(), **source)
        async with (
            serving(found, access) as server,
            httpx.AsyncClient(timeout=10, base_url=f"{server.url}/api/v1", headers=BEARER) as client,
        ):
            yield client

    @property
    def logged(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.audit_log.read_text().splitlines()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.storage.close()


@pytest.fixture
async def client(bench: Bench) -> AsyncIterator[httpx.AsyncClient]:
    async with bench.client() as client:
        yield client


async def rows(client: httpx.AsyncClient, query: str = "") -> list[dict[str, Any]]:
    answer = await client.get(f"dead-letters?{query}")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.shows("every reader sees class and count of dead letters, and never an error's text")
@pytest.mark.shows("reading dead letters over HTTP needs an operations token, on loopback too")
async def test_reading_needs_the_token_that_may_act_except_for_classes_without_text(client: httpx.AsyncClient) -> None:
    reading = {"authorization": f"Bearer {READ_TOKEN}"}
    async with httpx.AsyncClient(timeout=10, base_url=client.base_url) as stranger:
        for url in (f"dead-letters{path}" for path in PATHS):
            without = await stranger.get(url)
            reader = await stranger.get(url, headers=reading)
            wrong = await stranger.get(url, headers={"authorization": "Bearer 0123456789abcdef-wrong"})
            by_password = await stranger.get(url, auth=httpx.BasicAuth("anybody", TOKEN))

            assert error_of(without) == error_of(wrong) == error_of(by_password) == (401, "unauthorized"), url
            assert error_of(reader) == (403, "not_allowed"), url
        without = await stranger.get("dead-letter-classes")
        reader = await stranger.get("dead-letter-classes", headers=reading)

    assert error_of(without) == (401, "unauthorized")
    shown = reader.json()["rows"]
    assert [(row["error_class"], row["count"]) for row in shown] == [("KeyError", 5), ("a reason from your code", 2)]
    assert [row.keys() for row in shown] == [{"error_class", "count", "last_died"}] * 2
    for text in ("no such customer", "shop", "'id'", "Traceback", "k0", "v0"):
        assert text not in reader.text


@needs_root
@pytest.mark.parametrize(("others_may_read", "code"), [(True, "200"), (False, "401")])
async def test_others_may_read_classes(bench: Bench, others_may_read: bool, code: str) -> None:
    async with bench.client(access=AccessRights(others_may_read=others_may_read)) as client:
        assert await status_for_nobody(client.base_url, "/api/v1/dead-letter-classes") == code


async def test_a_list_has_no_values_but_an_export(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third, *_ = await rows(client)

    assert (first["topic"], first["partition"], first["offset"], first["tries"]) == ("t", 0, 0, 3)
    assert (first["error_class"], first["line"], first["error"]) == ("no such customer", "", "no such customer")
    assert (third["error_class"], third["line"], third["key"]) == ("KeyError", "shop.py:7", "k0")
    assert (first["key"], second["key"], second["damaged"]) == ("\ufffd\x00", None, False)
    assert not {"value", "headers", "traceback"} & first.keys()

    found: list[str] = []
    query: dict[str, str] = {"limit": "3", "topic": "t"}
    while True:
        page = (await client.get("dead-letters", params=query)).json()
        found += [row["id"] for row in page["rows"]]
        if page["next"] is None:
            break
        query["after"] = page["next"]

    assert found == ["1", "2", "3", "4", "5", "6", "7"]

    monkeypatch.setattr("kctl.http.api.dead_letters.EXPORT_ROWS", 2)

    answer = await client.get("dead-letters/export?topic=t")

    assert answer.headers["content-type"] == "application/jsonl"
    assert answer.headers["cache-control"] == "no-store"
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["offset"] for line in lines] == [0, 1, 0, 1, 2, 3, 4]
    assert lines[2]["value"] == "v0"


WRONG = (
    *("topics=t", "partition=x", "partition=-1", "died_from=yesterday", "limit=0", "hours=3", "topic=%ff&x=1"),
    *("after=x", "after=1e999/1", "after=nan/1", "after=1/99999999999999999999"),
    *("topic=", "text=", "traceback=", "error_class="),
)


async def test_they_are_found_by_each_field_of_the_filter_and_by_no_other(client: httpx.AsyncClient) -> None:
    for query, found in (
        ("topic=t&partition=0", 2),
        ("error_class=KeyError", 5),
        ("line=shop.py:7&offset_from=3", 2),
        ("text=v3", 1),
        ("key=k2", 1),
        ("traceback=srv/app", 5),
        ("tries_from=1", 1),
        ("tries_to=0&partition=1", 5),
        ("died_from=2026-01-01T00:00:00Z", 7),
        ("died_to=2026-01-01T00:00:00", 0),
        ("died_from=1700000000", 7),
        ("older_than_seconds=3600", 0),
        ("ids=1&ids=3&ids=x", 2),
        ("line=", 2),
    ):
        assert len(await rows(client, query)) == found, query
        assert (await client.get(f"dead-letters/groups?{query}")).json()["count"] == found, query

    for query in WRONG:
        assert error_of(await client.get(f"dead-letters?{query}")) == (400, "bad_params"), query
        assert error_of(await client.get(f"dead-letters/export?{query}")) == (400, "bad_params"), query
        assert query != "topics=t" or "the nearest is topic" in (await client.get("dead-letters?topics=t")).text, query


async def test_one_is_shown_as_text_as_json_and_in_hexadecimal(client: httpx.AsyncClient) -> None:
    text, parsed, hexed = [
        (await client.get("dead-letters/1", params={"as": form})).json() for form in ("text", "json", "hex")
    ]

    assert (text["value"], text["key_base64"]) == ('{"id": [1, "käse"]}', "/wA=")
    assert text["headers"] == [{"key": "h", "value": "1"}, {"key": "n", "value": None}]
    assert (text["timestamp"], text["tries"], text["traceback"]) == (1_700_000_000_000, 3, None)
    assert text["error"] == "no such customer"
    assert (parsed["value_json"], parsed["key_base64"]) == ({"id": [1, "käse"]}, "/wA=")
    assert (hexed["value_hex"][:4], hexed["key_hex"], hexed["headers"][0]["value_hex"]) == ("7b22", "ff00", "31")
    assert (await client.get("dead-letters/3")).json()["traceback"] == TRACE.partition("\n")[2]
    assert (await client.get("dead-letters/2")).json()["value"] is None
    for missing in ("4711", "t:0:1"):
        assert error_of(await client.get(f"dead-letters/{missing}")) == (404, "not_found")
    assert error_of(await client.get("dead-letters/1?as=x")) == (400, "bad_params")


NO_JSON = (
    b"{",
    b"[" * 100_000,
    *(b"[" * n + b"]" * n for n in range(900, 1000, 10)),
    b"NaN",
    b"1e999",
    b'"\\ud800"',
    b"\xff",
    b"1" * 5000,
)


async def test_what_is_no_json_is_shown_as_it_is(client: httpx.AsyncClient, bench: Bench) -> None:
    bench.storage.dead_letter([Message("u", 0, number, None, value, 0) for number, value in enumerate(NO_JSON)], "no")

    for row in await rows(client, "topic=u"):
        answer = await client.get(f"dead-letters/{row['id']}?as=json")
        assert answer.status_code == 200
        assert "value_json" not in answer.json(), row


def steps_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.mark.shows("HTTP changes only the number of dead letters that the caller saw; otherwise 409")
async def test_as_many_messages_as_were_seen_are_requeued(client: httpx.AsyncClient, bench: Bench) -> None:
    for verb, count in product(("requeue", "delete"), (4, 6, 0)):
        wrong = {"filter": {"error_class": "KeyError"}, "count": count}
        refused = await client.post(f"dead-letters/{verb}", json=wrong)
        assert error_of(refused) == (409, "count_changed")
        assert (refused.json()["expected"], refused.json()["found"]) == (count, 5)
    assert bench.storage.count_dead() == 7
    chosen = {"filter": {"line": "shop.py:7", "offset_from": 1}, "count": 4}

    steps = steps_of(await client.post("dead-letters/requeue", json=chosen))

    assert steps[-1] == {"done": 4, "complete": True}
    assert [(each.block.partition, each.offset) for each in bench.storage.dead()] == [(0, 0), (0, 1), (1, 0)]
    assert bench.storage.stats().pending == 4
    refused_first, *_, begun, ended = bench.logged
    assert begun["id"] != refused_first["id"]
    assert (begun["operation"], begun["state"], begun["ended_at"]) == ("dead letters requeue", "running", None)
    assert (ended["id"], ended["state"], ended["started_at"]) == (begun["id"], "done", begun["started_at"])
    assert (begun["by"], begun["via"]) == ("http token ann", "http")
    assert ended["text"] == "4 of 4 dead letters requeued"
    assert ended["params"] == {"line": "shop.py:7", "offset_from": 1, "count": 4}


async def test_an_unknown_change_is_rejected(client: httpx.AsyncClient, bench: Bench) -> None:
    bodies: list[dict[str, Any]] = [
        {"filter": {}},
        {"count": 7},
        {"filter": {"topics": "t"}, "count": 7},
        {"filter": {}, "count": "7"},
        {"filter": {}, "count": 7, "force": True},
        {"filter": {"topic": "\ud800"}, "count": 0},
        {"filter": {"ids": ["1"] * 501}, "count": 0},
        {"filter": [], "count": 7},
        {"filter": {"partition": None}, "count": 7},
        {"filter": {"text": ""}, "count": 7},
    ]
    for body in bodies:
        for verb in ("requeue", "delete"):
            answer = await client.post(
                f"dead-letters/{verb}", content=json.dumps(body).encode(), headers={"content-type": "application/json"}
            )
            assert error_of(answer) == (400, "bad_params"), body
        assert bench.storage.count_dead() == 7, body


@pytest.mark.shows("HTTP can send dead letters to a topic")
async def test_what_matches_is_sent_away(client: httpx.AsyncClient, bench: Bench) -> None:
    chosen = {"filter": {"line": "shop.py:7", "offset_from": 1}, "count": 4, "to": "parked"}
    without = await client.post("dead-letters/send", json={"filter": {}, "count": 7})
    other = await client.post("dead-letters/send", json=chosen | {"count": 5})
    missing = await client.post("dead-letters/send", json=chosen | {"to": "nowhere"})
    assert (error_of(without), error_of(other)) == ((400, "bad_params"), (409, "count_changed"))
    assert error_of(missing)[1] == "topic_missing"
    assert (bench.storage.count_dead(), bench.sent) == (7, [])

    steps = steps_of(await client.post("dead-letters/send", json=chosen))

    assert steps[-1] == {"done": 4, "complete": True}
    assert [(each.block.partition, each.offset) for each in bench.sent] == [(1, 1), (1, 2), (1, 3), (1, 4)]
    assert (bench.storage.count_dead(), bench.storage.stats().pending) == (3, 0)
    assert bench.logged[-1]["text"] == "4 of 4 dead letters sent"


class Endless(FileStorage):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.begun, self.ended = threading.Event(), threading.Event()

    def dead_groups(
        self, selection: Selection = EVERYTHING, hours: int = 0, progress: Progress = silent
    ) -> list[DeadLetterGroup]:
        self.begun.set()
        try:
            return super().dead_groups(selection, hours, progress)
        finally:
            self.ended.set()

    def dead_page(self, *_: object) -> DeadLetterPage:
        return DeadLetterPage([], "1/1")


@pytest.mark.shows("a search for dead letters ends when its caller leaves or the master ends")
@pytest.mark.parametrize("leaves", [True, False])
async def test_a_query_is_given_up_when_its_caller_leaves(bench: Bench, leaves: bool) -> None:
    endless = Endless(bench.storage.path)
    workbench = bench.workbench(endless)
    async with bench.client(workbench) as client:
        asked = asyncio.ensure_future(client.get("dead-letters/groups?text=x"))
        await asyncio.to_thread(endless.begun.wait, 10)
        assert not endless.ended.is_set()
        if leaves:
            asked.cancel()
        else:
            workbench.close()

        assert await asyncio.to_thread(endless.ended.wait, 10)
        await asyncio.gather(asked, return_exceptions=True)


class Held(FileStorage):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.reached, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def _remove_dead(self, dead_letters: list[DeadLetter]) -> int:
        self.reached.release()
        assert self.go_on.acquire(timeout=10)
        return super()._remove_dead(dead_letters)


@pytest.mark.shows("a change of many dead letters shows progress and ends when its caller leaves")
async def test_a_left_change_ends_soon(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_dead_letters, "PAGE", 2)
    held = Held(bench.storage.path)
    workbench = bench.workbench(held)
    steps = workbench.change("delete", EVERYTHING, 7, "ann")
    first = asyncio.ensure_future(anext(steps))
    await asyncio.to_thread(held.reached.acquire, timeout=10)

    assert len((await workbench.read(lambda store, _: store.dead_page())).rows) == 7, "it is read meanwhile"
    with pytest.raises(OperationRefused, match="another request is changing dead letters"):
        await anext(workbench.change("requeue", EVERYTHING, 7, "ann"))
    held.go_on.release()
    assert await first == {"done": 2}
    await asyncio.to_thread(held.reached.acquire, timeout=10)
    await steps.aclose()
    held.go_on.release()
    await asyncio.to_thread(workbench.close)

    assert bench.storage.count_dead() == 3
    ended = bench.logged[-1]
    assert (ended["state"], ended["text"]) == (
        "failed",
        "4 of 7 dead letters deleted; stopped by its caller, a cancel, or the end of the master",
    )
    held.close()


@pytest.mark.shows("changes of dead letters are operations: listed, logged and cancellable")
async def test_a_change_is_cancelled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbered_dead_letters, "PAGE", 2)
    held = Held(bench.storage.path)
    operations = OperationLog({}, cast("Any", None), bench.audit_log)
    chosen = {"filter": {"text": "v", "traceback": "v", "offset_from": 0}, "count": 2}
    async with bench.client(bench.workbench(held, operations.attend), operations=operations) as client:
        await client.post("dead-letters/requeue", json={**chosen, "count": 9})
        changing = asyncio.create_task(client.post("dead-letters/delete", json={"filter": {}, "count": 7}))
        await asyncio.to_thread(held.reached.acquire, timeout=10)
        under_way, refused = (await client.get("operations")).json()["rows"]
        held.go_on.release()
        await asyncio.to_thread(held.reached.acquire, timeout=10)
        cancelled = await client.post(f"operations/{under_way['id']}/cancel", json={})
        held.go_on.release()
        steps = steps_of(await changing)
        ended = (await client.get(f"operations/{under_way['id']}")).json()
        too_late = [await client.post(f"operations/{each}/cancel", json={}) for each in (ended["id"], "nothing")]
    held.close()

    assert [error_of(each) for each in too_late] == [(409, "operation_refused"), (404, "no_such_operation")]
    assert (refused["operation"], refused["state"]) == ("dead letters requeue", "failed")
    assert refused["by"] == "http token ann"
    hidden = "(in the audit log)"
    assert refused["params"] == {"offset_from": 0, **dict.fromkeys(("text", "traceback"), hidden), "count": 9}
    assert (under_way["params"], under_way["state"], cancelled.status_code) == ({"count": 7}, "running", 202)
    assert (steps[0], steps[-1]["error"]["code"]) == ({"done": 2}, "operation_failed")
    assert ended["text"] == (
        "cancelled by http token ann; 4 of 7 dead letters deleted; "
        "stopped by its caller, a cancel, or the end of the master"
    )
    assert (bench.storage.count_dead(), ended["state"], ended["started_at"] < ended["ended_at"]) == (3, "failed", True)
    assert bench.logged[0]["params"]["text"] == "v", "the audit log has all of the filter, once"
    assert len(bench.logged) == 4


class Broken(FileStorage):
    def _dead_places(self, *_: Any) -> Sequence[Any]:  # type: ignore[override]
        raise StorageUnusable("the disk is gone")

    def _put_back_dead(self, dead_letters: list[DeadLetter]) -> int:
        raise StorageError("there is no queue to put dead letters back into")


async def test_a_storage_that_cannot_is_an_error_in_our_shape(bench: Bench) -> None:
    broken = Broken(bench.storage.path)
    async with bench.client(bench.workbench(broken)) as client:
        away = await client.get("dead-letters")
        refused = await client.post("dead-letters/requeue", json={"filter": {"ids": ["1"]}, "count": 1})

    assert error_of(away) == (503, "storage_unusable")
    assert error_of(refused) == (409, "operation_refused")
    broken.close()
