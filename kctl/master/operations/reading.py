"""`pause`, `resume`, `seek`: what is read, and from where."""

from __future__ import annotations

import asyncio
from datetime import datetime

from kctl.errors import OperationRefused
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context
from kctl_agent.errors import BadParams
from kctl_agent.messages import number_of, printable_name
from kctl_agent.wire import JsonObject

__all__ = ["check_read", "pause", "resume", "scope", "seek"]

_OWNERS_SECONDS = 5.0


async def pause(context: Context, params: JsonObject, caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Nothing of it is read until `resume`; partitions stay where they are. It is kept first, then sent to everybody
    it concerns, so that what starts meanwhile starts paused."""
    worker, topic, partition = scope(context, params)
    made = context.pauses.add(worker, topic, partition, caller.name)
    carried_out = await _send_pauses_to_all(context, worker, report)
    return f"{made.what} is paused; {carried_out}", {
        "paused": [each.scope() | {"worker": each.worker} for each in [made]]
    }


async def resume(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Ends pauses: this one, those of a topic and its partitions, or all."""
    worker, topic, partition = scope(context, params)
    ended = context.pauses.remove(worker, topic, partition)
    carried_out = await _send_pauses_to_all(context, worker, report)
    return f"resumed: {', '.join(each.what for each in ended)}; {carried_out}", {
        "resumed": [each.what for each in ended]
    }


async def seek(context: Context, params: JsonObject, _caller: Caller, report: Report) -> tuple[str, JsonObject]:
    """Goes on reading a topic's partitions elsewhere: each owner moves the group's committed offset and the storage's
    stored offset together. Every partition must have an owner, or nothing is changed."""
    topic, dry_run = params["topic"], params.get("dry_run", False)
    check_read(context, topic, params.get("partition"))
    owners = await _owners(context, topic)
    wanted = sorted(owners) if params.get("partition") is None else [params["partition"]]
    missing = [each for each in wanted if owners.get(each) is None]
    if not wanted or missing:
        where = ", ".join(f"{topic}-{each}" for each in missing) or f"topic {topic}"
        raise OperationRefused(
            f"{where} is with no worker now: wait for a rebalance to end, or see `kctl rpc offset_checker`"
        )

    async def one(partition: int) -> JsonObject:
        operation = {"topic": topic, "partition": partition, "to": _wire_target(params["to"]), "dry_run": dry_run}
        return await context.run_on(str(owners[partition]), "seek", operation, report)

    outcomes = await asyncio.gather(*(one(each) for each in wanted), return_exceptions=True)
    failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
    done = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    if failed and not done:
        raise failed[0]
    text = "; ".join(str(outcome["text"]) for outcome in done)
    if failed:
        raise OperationRefused(f"only in part: {text}; but {'; '.join(str(each) for each in failed)}")
    rows = [outcome["result"] for outcome in done]
    return ("it would be: " if dry_run else "") + text, {"dry_run": dry_run, "rows": rows}


def scope(context: Context, params: JsonObject) -> tuple[str | None, str | None, int | None]:
    """Raises BadParams: not exactly one of worker, topic (with or without partition), all; or there is none of it."""
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
    """Raises BadParams: the fleet does not read this topic, or the brokers reported no such partition of it."""
    if topic not in context.config.kafka.topics:
        read = ", ".join(context.config.kafka.topics)
        raise BadParams(f"this fleet reads no topic {printable_name(topic)}; it reads {read}")
    known = context.partitions(topic)
    if partition is not None and known and partition not in known:
        raise BadParams(f"topic {topic} has no partition {partition}; it has {number_of(len(known), 'partition')}")


async def _send_pauses_to_all(context: Context, worker: str | None, report: Report) -> str:
    kinds = context.supervisor.kinds()
    names = [name for name in context.supervisor.names if kinds[name] != "engine"] if worker is None else [worker]
    done = await asyncio.gather(*(context.send_pauses(name, report) for name in names))
    return f"carried out by {', '.join(done) or 'no process, for none is running'}"


async def _owners(context: Context, topic: str) -> dict[int, str | None]:
    """Partition to the worker that has it."""
    sockets = await context.members.sockets()
    deadline = asyncio.get_running_loop().time() + _OWNERS_SECONDS
    outcome = await context.members.ask(context.members.concerned(sockets, "ping"), "offset_checker", {}, deadline)
    return {
        row["partition"]: answer.sender
        for answer in outcome.answers
        for row in answer.result.get("rows", ())
        if row.get("topic") == topic
    }


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
