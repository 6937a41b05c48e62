"""`kctl status` of a fleet on several hosts, joined from their masters' answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec

from kctl.fields import qualified
from kctl.hosts.hosts import HostsOutcome
from kctl.hosts.verdict import joined_verdict
from kctl.rows.lag import WORST, LagGlance
from kctl.rows.workers import StatusAnswer, WorkerRow, WorkerStatus
from kctl.rpc.decode import decoded
from kctl.status import Status
from kctl_agent.replies.block_size import StorageReply


def statuses_of(host: str, rows: Iterable[WorkerStatus], age_seconds: float = 0.0) -> tuple[WorkerStatus, ...]:
    """Names processes as in the fleet. A silent host's have the state `unknown`."""
    if not age_seconds:
        return tuple(replace(row, name=qualified(host, row.name)) for row in rows)
    return tuple(
        replace(row, name=qualified(host, row.name), state="unknown", since_seconds=row.since_seconds + age_seconds)
        for row in rows
    )


def joined_status(own: StatusAnswer | None, host: str, others: HostsOutcome, now: float) -> StatusAnswer:
    """`host` was asked; `now` in Unix seconds. Shows a silent host's last report without judging it. May be slow.
    Raises BadResult."""
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
        storage=_shared(list(heard.values())),
    )


def _lag(glances: Mapping[str, LagGlance], host: str) -> LagGlance | None:
    """Total lag is the same on every host, because it comes from brokers."""
    if not glances:
        return None
    seconds = [each.seconds for each in glances.values() if each.seconds is not None]
    worst = {(each.topic, each.partition): each for glance in glances.values() for each in glance.worst}
    in_order = sorted(worst.values(), key=lambda each: (-Status(each.status).severity, -(each.lag or 0), each.topic))
    whole = glances.get(host) or next(iter(glances.values()))
    return msgspec.structs.replace(whole, seconds=max(seconds, default=None), worst=tuple(in_order[:WORST]))


def _shared(answers: list[StatusAnswer]) -> StorageReply | None:
    has_own = any(each.verdict.has_own_storage for each in answers) and len(answers) > 1
    return None if has_own else next((each.storage for each in answers if each.storage is not None), None)


def _aged(host: str, row: WorkerRow, seconds: float) -> WorkerRow:
    age = None if row.age_seconds is None else row.age_seconds + seconds
    return replace(row, name=qualified(host, row.name), age_seconds=age)
