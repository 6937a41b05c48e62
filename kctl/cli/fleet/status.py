"""`kctl status`: shows the verdict on the fleet, its lag, its master and its workers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kctl import fleets
from kctl.cli.command import CONFIG, OUTPUT, Command, Option
from kctl.cli.fleet.ask import OF_HOSTS, OLD_SECONDS, ask, incomplete, of_hosts
from kctl.cli.fleet.worker_table import STATUS, worker_table
from kctl.cli.output import as_text, echo, whole
from kctl.cli.table import cell, clean, duration
from kctl.errors import NotWell
from kctl.fields import moment
from kctl.rpc.decode import answered
from kctl_agent.rpc.messages import number_of

if TYPE_CHECKING:
    from kctl.rows.partitions import LagGlance
    from kctl.rows.verdict import Verdict
    from kctl.rows.workers import StatusAnswer, WorkerRow, WorkerStatus
    from kctl.rpc.client import Reply
    from kctl_agent.replies.block_size import StorageReply
    from kctl_agent.replies.workers import Scope

_EVENTS = 3


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    from kctl.rows.workers import StatusAnswer

    fleet = fleets.find(options.config, env)
    reply = ask(fleet, "status", of_hosts(options), options.timeout, of_master=True)
    status = answered("status", StatusAnswer, reply.raw)
    echo(_text(fleet, status, reply, options.output))
    verdict = status.verdict
    if verdict.level.value in ("unknown", "failing", options.fail_on):
        raise NotWell(verdict.sentence)
    if (problem := incomplete(reply)) is not None:
        raise problem


def _text(fleet: fleets.Fleet, status: StatusAnswer, reply: Reply, output: str) -> str:
    about = fleets.announced(fleet.run_dir)
    master = {key: about.get(key) for key in ("pid", "version", "http_url", "config")}
    if output == "table":
        return "\n".join(_lines(fleet, master, status))
    answer = whole(reply)
    rows = _joined(answer["rows"], {row["name"]: row for row in answer.pop("workers", ())})
    return as_text({**answer, "fleet": fleet.name, "master": master, "rows": rows}, output)


def _lines(fleet: fleets.Fleet, master: Mapping[str, Any], status: StatusAnswer) -> list[str]:
    from kctl.rows.workers import with_statuses

    rows = with_statuses(status.workers, status.rows)
    return [
        *_head(status.verdict, status.lag),
        *_storage(status.storage),
        f"fleet {cell(fleet.name)}  " + "  ".join(f"{key} {cell(value)}" for key, value in master.items()),
        *worker_table(rows, STATUS),
        *_remarks(status.rows),
        *_events(rows),
    ]


def _head(verdict: Verdict, lag: LagGlance | None) -> Iterator[str]:
    yield clean(verdict.sentence)
    yield from (f"  and {each.level}: {clean(each.reason)}" for each in verdict.also)
    if lag is None:
        return
    behind = f"  behind open transactions {lag.behind_transaction}" if lag.behind_transaction else ""
    unknown = f" without {number_of(lag.unknown, 'partition')} of unknown lag" if lag.unknown else ""
    age = f"  age {duration(lag.age_seconds)}" if (lag.age_seconds or 0.0) > OLD_SECONDS else ""
    oldest = f"  oldest unhandled {cell(duration(lag.oldest_unhandled_seconds))}"
    yield f"lag {cell(lag.total)}{unknown}{behind}  time lag {cell(duration(lag.seconds))}{oldest}{age}"
    for row in lag.worst:
        oldest = f"oldest unhandled {cell(duration(row.oldest_unhandled_seconds))}"
        waiting = f"lag {cell(row.lag)}  time lag {cell(duration(row.lag_seconds))}  {oldest}"
        yield f"  {clean(row.topic)}-{row.partition}  {clean(row.status)}  {waiting}  {clean(row.reason)}"


def _storage(storage: StorageReply | None) -> Iterator[str]:
    if storage is None or not (storage.pending or storage.processing or storage.dead):
        return
    counts = {"pending": storage.pending, "processing": storage.processing, "dead": storage.dead}
    known = [f"{cell(count)} {state}" for state, count in counts.items() if count is not None]
    delayed = f" ({cell(storage.delayed)} of them delayed)" if storage.delayed else ""
    yield f"storage  {'  '.join(known)}{delayed}"


def _joined(supervised: list[dict[str, Any]], reported: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    unsupervised = [
        {"name": name, "kind": row.get("kind"), "state": None, "pid": row.get("pid")}
        for name, row in reported.items()
        if name not in {each["name"] for each in supervised}
    ]
    return [{**row, "worker": reported.get(row["name"])} for row in [*supervised, *unsupervised]]


def _remarks(statuses: Iterable[WorkerStatus]) -> Iterator[str]:
    # A topic's pause appears once, without a worker, because it applies to any worker that gets the topic.
    statuses = list(statuses)
    yield from dict.fromkeys(pause_text(pause) for each in statuses for pause in each.paused if pause.topic is not None)
    for status in statuses:
        if status.warning:
            yield f"{cell(status.name)}: {cell(status.warning)}"
        yield from (f"{cell(status.name)}: {pause_text(pause)}" for pause in status.paused if pause.topic is None)
        if status.state in ("backoff", "fatal"):
            yield f"{cell(status.name)}: its log is {cell(status.log)}"


def pause_text(pause: Scope) -> str:
    """Describes a pause: `orders-3 is paused by ann since 2026-11-21T10:04:02Z`"""
    topic, partition = pause.topic, pause.partition
    what = "everything" if topic is None else topic if partition is None else f"{topic}-{partition}"
    return f"{cell(what)} is paused by {cell(pause.by)} since {moment(pause.since)}"


def _events(rows: Iterable[WorkerRow]) -> Iterator[str]:
    of_all = sorted(((row.name, event) for row in rows for event in row.events), key=lambda each: each[1].at)
    for name, event in of_all[-_EVENTS:]:
        yield f"{moment(event.at)}  {cell(name)}  {cell(event.kind)}  {cell(event.text)}"


COMMAND = Command(
    "status",
    "Show the state of a fleet, its lag and its workers.",
    (
        CONFIG,
        OUTPUT,
        Option(
            ("--fail-on",),
            "exit 1 for this verdict or worse; unknown always exits 1",
            default="degraded",
            choices=("degraded", "failing"),
        ),
        *OF_HOSTS,
        Option(("--timeout",), "in total", "seconds", "SECONDS", 5.0),
    ),
    details="""\
The first line is the verdict with its reason: ok, degraded, unknown or failing. The page and /readyz show the same
verdict. For each worker, `desired` is the state that the master wants, `state` what it sees, and `doing` what the
worker reports; `rss` is the memory of all its processes.

Exit codes: 0 ok, 1 degraded, failing or unknown, 3 a worker did not answer, 5 no master to ask. With --fail-on failing,
a degraded fleet does not exit with 1.""",
    run=_run,
)
