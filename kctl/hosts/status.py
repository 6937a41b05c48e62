"""`kctl status` of a fleet on several hosts: the answers of their masters made one. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import msgspec

from kctl.fields import qualified
from kctl.hosts.hosts import HostsOutcome
from kctl.rows.lag import WORST, LagGlance
from kctl.rows.verdict import UNOWNED, Finding, Level, Verdict
from kctl.rows.workers import StatusAnswer, WorkerRow, WorkerStatus
from kctl.rpc.decode import decoded
from kctl.rpc.fan_out import Failed
from kctl.status import Status
from kctl.status.unhandled import older
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

    What a host that is silent now has reported of its processes is shown, but judges nothing. May take a while; raises
    BadResult where an answer does not fit.
    """
    answers = {each.host: (decoded(StatusAnswer, each.status), age) for each, age in others.replies}
    if own is not None:
        answers[host] = own, 0.0
    in_order, silent = sorted(answers.items()), {each.sender for each in others.failed}
    heard = {name: answer for name, (answer, _) in in_order if name not in silent}
    verdict = joined_verdict({name: answer.verdict for name, answer in heard.items()}, others.failed, now)
    lag = _lag({name: answer.lag for name, answer in heard.items() if answer.lag is not None}, host)
    if lag is not None:
        lag = msgspec.structs.replace(lag, oldest_unhandled_seconds=verdict.oldest_unhandled_seconds)
    return StatusAnswer(
        rows=tuple(row for name, (answer, age) in in_order for row in statuses_of(name, answer.rows, age)),
        verdict=verdict,
        workers=tuple(_aged(name, row, age) for name, (answer, age) in in_order for row in answer.workers),
        lag=lag,
        storage=_shared([answer.storage for answer in heard.values()]),
    )


def _lag(glances: Mapping[str, LagGlance], host: str) -> LagGlance | None:
    """Joins what each host knows of its own partitions; the lag of all of them brokers tell every host alike."""
    if not glances:
        return None
    seconds = [each.seconds for each in glances.values() if each.seconds is not None]
    worst = {(each.topic, each.partition): each for glance in glances.values() for each in glance.worst}
    in_order = sorted(worst.values(), key=lambda each: (-Status(each.status).severity, -(each.lag or 0), each.topic))
    whole = glances.get(host) or next(iter(glances.values()))
    return msgspec.structs.replace(whole, seconds=max(seconds, default=None), worst=tuple(in_order[:WORST]))


def _shared(storages: list[StorageReply | None]) -> StorageReply | None:
    """Returns the one storage of all hosts; None where some have one of their own."""
    known = {each.storage: each for each in storages if each is not None}
    return next(iter(known.values())) if len(known) == 1 else None


def _aged(host: str, row: WorkerRow, seconds: float) -> WorkerRow:
    age = None if row.age_seconds is None else row.age_seconds + seconds
    return replace(row, name=qualified(host, row.name), age_seconds=age)


def joined_verdict(heard: Mapping[str, Verdict], failed: Iterable[Failed], now: float) -> Verdict:
    """Joins the verdicts of hosts: the same on whatever host. Hosts that `failed` to answer are findings themselves;
    partitions that no host reads are found by each host, and named once."""
    missing = [Finding(Level.DEGRADED, "hosts", each.message, now) for each in failed]
    if not heard:
        reason = missing[0].reason if missing else "no host has answered"
        return Verdict(Level.UNKNOWN, "hosts", reason, now)
    in_order = sorted(heard.items())
    oldest = older(*(verdict.oldest_unhandled_seconds for verdict in heard.values()))
    findings = [*missing, *(each for name, verdict in in_order for each in _findings(name, verdict))]
    unowned = [each for _, verdict in in_order for each in (verdict.main, *verdict.also) if each.about == UNOWNED]
    findings += sorted(unowned, key=lambda each: -each.level.severity)[:1]
    if not findings:
        main = in_order[0][1].main
        return Verdict.of(msgspec.structs.replace(main, reason=f"{main.reason}; {len(heard)} hosts answer"), (), oldest)
    main, *also = sorted(findings, key=lambda each: -each.level.severity)
    return Verdict.of(main, tuple(also), oldest)


def _findings(host: str, verdict: Verdict) -> Iterator[Finding]:
    for each in (verdict.main, *verdict.also):
        if each.level is not Level.OK and each.about not in ("hosts", UNOWNED):  # these are for the one that asks
            yield msgspec.structs.replace(each, reason=f"{host}: {each.reason}")
