"""`kctl status` of a fleet on several hosts: the answers of their masters made one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import msgspec

from kctl.fields import qualified
from kctl.hosts.hosts import HostsOutcome
from kctl.rows.verdict import Finding, Level, Verdict
from kctl.rows.workers import StatusAnswer, WorkerRow, WorkerStatus
from kctl.rpc.decode import decoded
from kctl_agent.replies.block_size import StorageReply


def statuses_of(host: str, rows: Iterable[WorkerStatus], age_seconds: float = 0.0) -> tuple[WorkerStatus, ...]:
    """Returns the processes of a host as they are named among those of all hosts. What was heard so long ago of a host
    that is silent now shows no state."""
    if not age_seconds:
        return tuple(replace(row, name=qualified(host, row.name)) for row in rows)
    return tuple(
        replace(row, name=qualified(host, row.name), state="unknown", since_seconds=row.since_seconds + age_seconds)
        for row in rows
    )


def joined_status(own: StatusAnswer | None, host: str, others: HostsOutcome, now: float) -> StatusAnswer:
    """Joins the answer of `host`, where it was asked, with those of the others; `now` in Unix seconds.

    The lag is that of one host, for the brokers tell every master the same. What a host that is silent now has
    reported of its processes is shown, but judges nothing. May take a while; raises BadResult where an answer does not
    fit.
    """
    answers = {each.host: (decoded(StatusAnswer, each.status), age) for each, age in others.replies}
    if own is not None:
        answers[host] = own, 0.0
    silent = {each.sender for each in others.failed}
    in_order = sorted(answers.items())
    heard = {name: answer for name, (answer, _) in in_order if name not in silent}
    missing = [Finding(Level.DEGRADED, "hosts", each.message, now) for each in others.failed]
    return StatusAnswer(
        rows=tuple(row for name, (answer, age) in in_order for row in statuses_of(name, answer.rows, age)),
        verdict=_verdict(heard, missing, now),
        workers=tuple(_aged(name, row, age) for name, (answer, age) in in_order for row in answer.workers),
        lag=own.lag if own is not None else next((answer.lag for answer in heard.values()), None),
        storage=_shared([answer.storage for answer in heard.values()]),
    )


def _shared(storages: list[StorageReply | None]) -> StorageReply | None:
    """Returns the one storage of all hosts; None where some have one of their own."""
    known = {each.storage: each for each in storages if each is not None}
    return next(iter(known.values())) if len(known) == 1 else None


def _aged(host: str, row: WorkerRow, seconds: float) -> WorkerRow:
    age = None if row.age_seconds is None else row.age_seconds + seconds
    return replace(row, name=qualified(host, row.name), age_seconds=age)


def _verdict(heard: dict[str, StatusAnswer], missing: list[Finding], now: float) -> Verdict:
    if not heard:
        reason = missing[0].reason if missing else "no host has answered"
        return Verdict(Level.UNKNOWN, "hosts", reason, now)
    findings = [*missing, *(each for name, answer in heard.items() for each in _findings(name, answer.verdict))]
    if not findings:
        main = next(iter(heard.values())).verdict.main
        return Verdict.of(msgspec.structs.replace(main, reason=f"{main.reason}; {len(heard)} hosts answer"))
    main, *also = sorted(findings, key=lambda each: -each.level.severity)
    return Verdict.of(main, tuple(also))


def _findings(host: str, verdict: Verdict) -> Iterator[Finding]:
    for each in (verdict.main, *verdict.also):
        if each.level is not Level.OK and each.about != "hosts":  # which hosts are missing is for the one that asks
            yield msgspec.structs.replace(each, reason=f"{host}: {each.reason}")
