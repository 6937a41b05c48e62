"""`pause`, `resume`, `seek`: what is read, and from where."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from datetime import datetime

from kctl.errors import KctlError, OperationRefused, OperationUnknown
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context, ended, together
from kctl.master.pauses import Pause
from kctl.rpc.fan_out import typed
from kctl_agent.errors import BadParams
from kctl_agent.replies.partitions import PartitionsReply
from kctl_agent.rpc.messages import number_of, printable_name
from kctl_agent.rpc.wire import JsonObject

__all__ = ["check_read", "pause", "resume", "scope", "seek"]

_OWNERS_SECONDS = 5.0
_EACH = re.compile(r"\d{1,9}=\d{1,19}(,\d{1,9}=\d{1,19})*")


async def pause(context: Context, params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Nothing of it is read until `resume`; partitions stay where they are. It is kept first, then sent to everybody
    it concerns, so that what starts meanwhile starts paused."""
    worker, topic, partition = scope(context, params)
    before = context.pauses.all()
    made = context.pauses.add(worker, topic, partition, caller.name)
    carried_out = await _send_pauses_to_all(context, worker, report, before)
    return f"{made.what} is paused; {carried_out}", {
        "paused": [each.scope() | {"worker": each.worker} for each in [made]]
    }


async def resume(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Ends pauses: this one, those of a topic and its partitions, or all."""
    worker, topic, partition = scope(context, params)
    before = context.pauses.all()
    removed = context.pauses.remove(worker, topic, partition)
    carried_out = await _send_pauses_to_all(context, worker, report, before)
    return f"resumed: {', '.join(each.what for each in removed)}; {carried_out}", {
        "resumed": [each.what for each in removed]
    }


async def seek(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Goes on reading a topic's partitions elsewhere: each owner moves the group's committed offset and the storage's
    stored offset together. Every partition must have an owner, and a place where it is to go on, or nothing is changed;
    the places are fixed before any owner begins to wait for its batch."""
    topic = params["topic"]
    check_read(context, topic, params.get("partition"))
    owners = await _owners(context, topic)
    targets = _targets(params["to"], params.get("partition"), owners)
    missing = [each for each in targets if owners.get(each) is None]
    if not targets or missing:
        where = ", ".join(f"{topic}-{each}" for each in missing) or f"topic {topic}"
        raise OperationRefused(
            f"{where} is with no worker now: wait for a rebalance to end, or see `kctl rpc offset_checker`"
        )

    async def one(partition: int, to: str, dry_run: bool) -> JsonObject:
        given = {"topic": topic, "partition": partition, "to": to, "dry_run": dry_run}
        return await context.run_on(str(owners[partition]), "seek", given, report)

    try:
        planned = await together(one(partition, to, True) for partition, to in targets.items())
    except OperationUnknown as error:
        raise OperationRefused(str(error)) from error
    if params.get("dry_run", False):
        return f"it would be: {_texts(planned)}", {"dry_run": True, "rows": [each["result"] for each in planned]}
    fixed = [(each["result"]["partition"], str(each["result"]["to"])) for each in planned]
    outcomes = await ended(one(partition, to, False) for partition, to in fixed)
    done = [each for each in outcomes if not isinstance(each, BaseException)]
    if len(done) < len(outcomes):
        raise _whole([each for each in outcomes if isinstance(each, BaseException)], _texts(done))
    return _texts(done), {"dry_run": False, "rows": [each["result"] for each in done]}


def _whole(errors: list[BaseException], done: str) -> KctlError:
    """One error that names what was done too."""
    kind = OperationUnknown if any(isinstance(each, OperationUnknown) for each in errors) else OperationRefused
    reasons = "; ".join(filter(None, map(str, errors)))
    return kind("; but ".join(filter(None, (done and f"only in part: {done}", reasons))))


def _texts(outcomes: list[JsonObject]) -> str:
    return "; ".join(str(outcome["text"]) for outcome in outcomes)


def scope(context: Context, params: JsonObject) -> tuple[str | None, str | None, int | None]:
    """Worker, topic and partition that are meant; all None: everything. Raises BadParams: not exactly one of worker,
    topic (with or without partition), all; or there is none of it."""
    worker, topic, partition = params.get("worker"), params.get("topic"), params.get("partition")
    if sum((worker is not None, topic is not None, bool(params.get("all", False)))) != 1:
        if params.get("all", False):
            raise BadParams(f"only one of all and {'topic' if worker is None else 'worker'}")
        if worker is not None:
            raise BadParams("only one of worker and topic")
        raise BadParams("give a worker, a topic (and a partition of it), or all")
    if partition is not None and topic is None:
        raise BadParams("a partition belongs to a topic: name it too")
    if worker is not None and context.supervisor.process(worker).launch.kind == "engine":
        raise BadParams(f"{worker} reads nothing itself: pause a worker, a topic, or all")
    if topic is not None:
        check_read(context, topic, partition)
    return worker, topic, partition


def check_read(context: Context, topic: str, partition: int | None) -> None:
    """Refuse a topic or partition that this fleet does not read. Raises BadParams: the fleet does not read this topic,
    or the brokers reported no such partition of it."""
    if topic not in context.config.kafka.topics:
        read = ", ".join(context.config.kafka.topics)
        raise BadParams(f"this fleet reads no topic {printable_name(topic)}; it reads {read}")
    known = context.partitions(topic)
    if partition is not None and known and partition not in known:
        raise BadParams(f"topic {topic} has no partition {partition}; it has {number_of(len(known), 'partition')}")


async def _send_pauses_to_all(context: Context, worker: str | None, report: Report, before: list[Pause]) -> str:
    """Given up, the pauses are again those of `before`, here and in every process."""
    kinds = context.supervisor.kinds()
    names = [name for name in context.supervisor.names if kinds[name] != "engine"] if worker is None else [worker]
    try:
        done = await together(context.send_pauses(name, report) for name in names)
    except BaseException:
        try:
            context.pauses.replace(before)
        except OperationRefused as error:
            raise OperationUnknown(str(error)) from error
        await context.take_back(names)
        raise
    return f"carried out by {', '.join(done) or 'no process, for none is running'}"


async def _owners(context: Context, topic: str) -> dict[int, str | None]:
    """Partition to the worker that has it."""
    sockets = await context.members.sockets()
    deadline = asyncio.get_running_loop().time() + _OWNERS_SECONDS
    outcome = await context.members.ask(context.members.concerned(sockets, "ping"), "offset_checker", {}, deadline)
    return {
        row.partition: answer.sender
        for answer in typed(outcome, PartitionsReply).answers
        for row in answer.result.rows
        if row.topic == topic
    }


def _targets(to: str, partition: int | None, all_partitions: Iterable[int]) -> dict[int, str]:
    """Partition to where it is to go on, as an agent reads it. `0=1200,3=55` names the partitions itself."""
    if not _EACH.fullmatch(to):
        return dict.fromkeys(sorted(all_partitions) if partition is None else [partition], _wire_target(to))
    if partition is not None:
        raise BadParams(f"{to} names its partitions: leave out the other one")
    return {int(each): offset for each, _, offset in (pair.partition("=") for pair in to.split(","))}


def _wire_target(to: str) -> str:
    """`2026-11-21T10:00` -> `@1795255200000`, local time without an offset of its own; anything else as it is."""
    if to in ("earliest", "latest") or to.isdecimal() or to.startswith("@"):
        return to
    try:
        return f"@{int(datetime.fromisoformat(to).timestamp() * 1000)}"
    except ValueError:
        raise BadParams(
            f"{to!r} is not a position: use earliest, latest, an offset, or a time such as 2026-11-21T10:00"
        ) from None
