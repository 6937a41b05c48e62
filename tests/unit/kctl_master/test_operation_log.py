import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from kctl.errors import KctlError, NoSuchOperation, OperationRefused, OperationUnknown
from kctl.master.operations.base import Caller, Operation, Report, operation_events
from kctl.master.operations.context import Context
from kctl.master.operations.fleet_operation import FleetOperation
from kctl.master.operations.operation_log import OperationLog
from kctl_agent.errors import BadParams, UnknownMethod
from kctl_agent.rpc.params import param
from kctl_agent.rpc.wire import JsonObject

US = Caller(os.getuid())
TOKEN = Caller(None, via="http", token="ci")
Carry = Callable[[JsonObject, Caller, Report], Awaitable[tuple[str, JsonObject]]]


def kind(name: str, carry: Carry, *, is_long: bool = False, deadline_seconds: float = 30.0) -> type[FleetOperation]:
    class Made(FleetOperation, rpc="made"):
        name: str | None = param("a process", default=None)

        def touches(self, context: Context) -> frozenset[str]:
            return frozenset({self.name} if self.name else ())

        async def carry_out(self, context: Context, caller: Caller, report: Report) -> tuple[str, JsonObject]:
            return await carry({"name": self.name} if self.name else {}, caller, report)

    Made.rpc, Made.is_long, Made.limit_seconds = name, is_long, deadline_seconds
    return Made


async def at_once(params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
    return f"did it for {caller.name}", {"params": params}


async def never(params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
    report("2 of 3")
    await asyncio.Event().wait()
    raise AssertionError("unreachable")


async def impossible(params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
    raise KctlError("no broker answers")


async def defective(params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
    raise ZeroDivisionError("secret detail")


def operations(*types: type[FleetOperation], audit: Path | None = None) -> OperationLog:
    return OperationLog({each.rpc: each for each in types}, cast("Any", None), audit)


def written(path: Path) -> list[JsonObject]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def audited(path: Path) -> list[JsonObject]:
    return [line for line in written(path) if line["state"] != "running"]


async def ended(log: OperationLog, id_: str) -> Operation:
    over = asyncio.Event()
    log.listeners.append(
        lambda operation: over.set() if operation.id == id_ and operation.ended_at is not None else None
    )
    if log.find(id_).state == "running":
        async with asyncio.timeout(30):
            await over.wait()
    return log.find(id_)


async def test_an_operation_is_answered_with_its_end_and_audited_without_its_result(tmp_path: Path) -> None:
    log = operations(kind("stop", at_once), audit=tmp_path / "logs" / "operations.jsonl")

    done = await log.submit("stop", {"name": "worker-0", "deadline_seconds": 7}, US, 30.0)

    assert (done.state, done.text, done.result) == ("done", f"did it for {US.name}", {"params": {"name": "worker-0"}})
    assert done.deadline_seconds == 7.0
    begun, line = written(tmp_path / "logs" / "operations.jsonl")
    assert begun == {**line, "state": "running", "text": "", "ended_at": None}
    assert line == {key: value for key, value in done.to_json().items() if key != "result"}
    assert (line["operation"], line["by"], line["uid"], line["via"]) == ("stop", US.name, US.uid, "socket")
    assert log.counts == {("stop", "done"): 1}


async def test_a_long_operation_is_answered_while_it_runs_and_reports_its_progress() -> None:
    go = asyncio.Event()

    async def drain(params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
        report("1 of 2 stopped")
        await go.wait()
        return "both stopped", {}

    log = operations(kind("drain", drain, is_long=True))
    seen: list[tuple[str, str]] = []
    log.listeners.append(lambda operation: seen.append((operation.id, operation.state)))

    operation = await log.submit("drain", {}, US, 60.0)
    assert (operation.state, operation.text, operation.ended_at) == ("running", "1 of 2 stopped", None)
    go.set()

    over = await ended(log, operation.id)
    assert (over.state, over.text) == ("done", "both stopped")
    rows, _ = await log.listed(1.0, is_local=True)
    assert [each["text"] for each in rows] == ["both stopped"]
    assert "result" not in rows[0]
    assert seen == [("1", "running"), ("1", "done")]
    soon = await operations(kind("drain", impossible, is_long=True)).submit("drain", {}, US, 60.0)
    assert (soon.state, soon.text) == ("failed", "no broker answers"), "it ends soon, and is answered with its end"


async def test_a_cancelled_operation_fails_and_so_does_one_at_the_end_of_the_master(tmp_path: Path) -> None:
    log = operations(kind("drain", never, is_long=True), kind("stop", at_once))
    running = await log.submit("drain", {}, US, 0.0)

    assert log.cancel(running.id, TOKEN).state == "running"

    assert (await ended(log, running.id)).text == "cancelled by http token ci"
    with pytest.raises(OperationRefused, match="has ended already"):
        log.cancel(running.id, US)
    with pytest.raises(NoSuchOperation, match="there is no operation 99;"):
        log.cancel("99", US)

    log = operations(kind("drain", never, is_long=True), kind("stop", at_once), audit=tmp_path / "operations.jsonl")
    running = await log.submit("drain", {}, US, 0.0)

    await log.close()

    assert (log.find(running.id).state, log.find(running.id).text) == ("failed", "the master stops")
    assert len(audited(tmp_path / "operations.jsonl")) == 1
    with pytest.raises(OperationRefused, match="the master is stopping"):
        await log.submit("stop", {}, US, 30.0)


async def test_what_cannot_be_taken_back_is_unknown_and_taking_back_is_not_interrupted(tmp_path: Path) -> None:
    given_up, go = asyncio.Event(), asyncio.Event()

    async def stop(params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.set()
            await go.wait()
            raise OperationUnknown("worker-0 has been asked to leave") from None
        raise AssertionError("unreachable")

    log = operations(kind("stop", stop, deadline_seconds=0.05), audit=tmp_path / "operations.jsonl")
    running = await log.submit("stop", {}, US, 0.0)
    log.cancel(running.id, US)
    await given_up.wait()
    log.cancel(running.id, TOKEN)
    await asyncio.sleep(0.1)  # the deadline passes meanwhile
    go.set()

    over = await ended(log, running.id)
    text = f"it may still happen: cancelled by {US.name}; worker-0 has been asked to leave"
    assert (over.state, over.text) == ("unknown", text)
    assert [line["state"] for line in audited(tmp_path / "operations.jsonl")] == ["unknown"]
    assert log.counts == {("stop", "unknown"): 1}


async def test_a_conflicting_operation_is_rejected_until_the_first_has_ended() -> None:
    log = operations(kind("drain", never, is_long=True), kind("stop", at_once))
    first = await log.submit("drain", {"name": "worker-0"}, US, 0.0)

    with pytest.raises(
        OperationRefused, match=rf"operation {first.id} \(drain worker-0, by {US.name}\) is in progress"
    ):
        await log.submit("stop", {"name": "worker-0"}, TOKEN, 30.0)
    assert (await log.submit("stop", {"name": "worker-1"}, US, 30.0)).state == "done", "another process"
    assert (await log.submit("stop", {}, US, 30.0)).state == "done", "it touches nothing"
    log.cancel(first.id, US)
    await ended(log, first.id)

    assert (await log.submit("stop", {"name": "worker-0"}, US, 30.0)).state == "done"
    assert log.counts["stop", "refused"] == 1
    assert len(log.all()) == 4, "what was refused is no operation"


async def test_bad_requests_begin_and_defects_show_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = operations(kind("stop", at_once), audit=tmp_path / "operations.jsonl")

    with pytest.raises(UnknownMethod, match="there is no operation explode; there are stop"):
        await log.submit("explode", {}, US, 30.0)
    for params in ({"nobody": 1}, {"name": 1}, {"deadline_seconds": 0}, {"deadline_seconds": float("nan")}):
        with pytest.raises(BadParams):
            await log.submit("stop", params, US, 30.0)

    assert log.all() == []
    assert log.counts == {("stop", "refused"): 4}
    assert not (tmp_path / "operations.jsonl").exists()

    log = operations(kind("seek", defective), kind("stop", at_once))
    failed = await log.submit("seek", {}, US, 30.0)

    assert (failed.state, failed.text) == ("failed", "a defect in kctl; the master's log has its traceback")
    assert "ZeroDivisionError" in caplog.text
    assert (await log.submit("stop", {}, US, 30.0)).state == "done"


async def test_what_was_under_way_when_a_master_was_killed_is_reported_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "operations.jsonl"
    before = operations(kind("drain", never, is_long=True), kind("stop", at_once), audit=path)
    waits = ("stop", 30.0), ("drain", 0.0), ("stop", 30.0)
    begun = [(await before.submit(name, {}, US, seconds)).id for name, seconds in waits]
    killed_with = path.read_bytes()
    await before.close()
    path.write_bytes(killed_with + b'{"id": "9", "via": "cli", "state": "running", "params": {}}\n')

    after = operations(kind("stop", at_once), audit=path)
    await after.report_interrupted()

    assert [(each.id, each.state, each.text.partition(":")[0]) for each in after.all()] == [
        (begun[1], "unknown", "interrupted")
    ]
    assert audited(path)[-1]["state"] == "unknown"
    assert int((await after.submit("stop", {}, US, 30.0)).id) > int(begun[1])
    path.write_bytes(b'"half": 1}\n[]\n' + path.read_bytes())
    third = operations(audit=path)
    await third.report_interrupted()
    assert third.all() == []


async def test_the_last_five_hundred_are_known_newest_first_and_none_that_still_runs_is_forgotten() -> None:
    log = operations(kind("drain", never, is_long=True), kind("stop", at_once))
    running = await log.submit("drain", {"name": "worker-0"}, US, 0.0)
    for _ in range(600):
        await log.submit("stop", {}, US, 30.0)

    known = [operation.id for operation in log.all()]

    assert known == [*(str(number) for number in range(601, 102, -1)), running.id]
    with pytest.raises(NoSuchOperation, match="there is no operation 2;"):
        log.find("2")
    await log.close()


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("restart", {"all": True, "rolling": True}, "restart all rolling"),
        ("restart", {"name": "worker-0,worker-1", "rolling": False}, "restart worker-0,worker-1"),
        ("pause", {"topic": "orders", "partition": 0}, "pause topic orders partition 0"),
        ("seek", {"topic": "orders", "to": "earliest", "dry_run": True}, "seek topic orders to earliest dry-run"),
        ("log_level", {"name": "master", "level": "DEBUG"}, "log-level master DEBUG"),
        ("drain", {"name": "worker-0", "deadline_seconds": 5.0}, "drain worker-0 within 5 s"),
    ],
)
def test_an_operation_is_named_as_one_would_type_it(name: str, params: JsonObject, words: str) -> None:
    times: dict[str, Any] = {"started_at": 1.0, "ended_at": 2.0, "deadline_seconds": 30.0}
    given = Operation(
        id="1", name=name, params=params, by="root", uid=0, via="socket", state="done", touches=frozenset(), **times
    )

    assert given.words == words
    assert [event.text for event in operation_events(given)] == [f"{words}, by root: done"]
