"""In a fleet on several hosts, joins the masters' answers into one `kctl status` and one verdict. Pure."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from kctl.fields import moment, qualified, shortened
from kctl.hosts.hosts import HostsOutcome
from kctl.rows.partitions import WORST, LagGlance
from kctl.rows.verdict import UNOWNED, Finding, Level, Verdict
from kctl.rows.workers import StatusAnswer, WorkerRow, WorkerStatus
from kctl.rpc.decode import decoded
from kctl.rpc.fan_out import Failed
from kctl.status import Status
from kctl.status.assessments import all_well
from kctl.status.unhandled import older
from kctl_agent.replies.block_size import StorageReply

_NAMED = 3
_SHARE = re.compile(r"(\d{1,18}) of (\d{1,18}) ")
_COUNTS = re.compile(r"(\d{1,18}) (?:partitions? )?(idle|ok|elsewhere)(?:, |$)")
_AMOUNT = re.compile(r"(?<![\w-])\d[\d,.]*")


def joined_verdict(heard: Mapping[str, Verdict], failed: Collection[Failed], now: float) -> Verdict:
    """Joins the verdicts of all hosts. The result does not depend on the host that joins them.

    Adds a finding for each host that `failed` to answer. Keeps only the worst of all findings about partitions that no
    host reads.
    """
    missing = [Finding(Level.DEGRADED, "hosts", each.message, now) for each in failed]
    if not heard:
        reason = missing[0].reason if missing else "no host has answered"
        return Verdict(Level.UNKNOWN, "hosts", reason, now)
    in_order, is_shared = sorted(heard.items()), not any(each.has_own_storage for each in heard.values())
    # Other hosts answer for the partitions of a host that has gone, but not for a storage of its own.
    is_answered_for = not failed or (is_shared and all(each.code == "gone" for each in failed))
    oldest = older(*(each.oldest_unhandled_seconds for each in heard.values())) if is_answered_for else None
    unowned = [each for _, verdict in in_order for each in (verdict.main, *verdict.also) if each.about == UNOWNED]
    unowned = sorted(unowned, key=lambda each: -each.level.severity)[:1]
    findings = [*missing, *_findings(in_order), *unowned]
    if not findings:
        reason = "; ".join((*_well(in_order, is_shared), f"{len(heard)} hosts answer"))
        return Verdict.of(msgspec.structs.replace(in_order[0][1].main, reason=reason), (), oldest)
    main, *also = sorted(findings, key=lambda each: -each.level.severity)
    return Verdict.of(main, tuple(also), oldest)


def _findings(in_order: Sequence[tuple[str, Verdict]]) -> Iterator[Finding]:
    done = {about for _, verdict in in_order for about in verdict.works}
    alike: dict[tuple[str, str], list[tuple[str, Finding]]] = {}
    for host, verdict in in_order:
        for each in (verdict.main, *verdict.also):
            if each.level is not Level.OK and each.about not in ("hosts", UNOWNED):  # these are for the one that asks
                what, _, _ = _parts(each)
                key = _SHARE.sub("", what) if each.about == "partitions" else what
                alike.setdefault((each.about, key), []).append((host, each))
    for (about, what), found in alike.items():
        level = max((each.level for _, each in found), key=lambda each: each.severity)
        since = min(each.since for _, each in found)
        reason = _reason(what, found, since, is_of_all=len(found) == len(in_order) > 1)
        # If some host does the affected work for all, the problem is not worse than `degraded`.
        yield Finding(Level.DEGRADED if about in done else level, about, reason, since)


def _parts(finding: Finding) -> tuple[str, str, str]:
    return finding.reason.partition(f" since {moment(finding.since)}")


def _reason(what: str, found: Sequence[tuple[str, Finding]], since: float, *, is_of_all: bool) -> str:
    hosts = "" if is_of_all else f"{shortened([host for host, _ in found], _NAMED)}: "
    if shares := [share for _, each in found if each.about == "partitions" and (share := _SHARE.match(each.reason))]:
        what = f"{sum(int(each[1]) for each in shares)} of {max(int(each[2]) for each in shares)} {what}"
    _, is_dated, why = _parts(found[0][1])
    whys: dict[str, str] = {}
    for host, each in found:
        whys.setdefault(_AMOUNT.sub("", _parts(each)[2]), f"{host}{_parts(each)[2]}")
    if len(whys) > 1:
        why = ": " + "; ".join([*whys.values()][:_NAMED])
    return f"{hosts}{what}{f' since {moment(since)}' if is_dated else ''}{why}"


def _well(in_order: Sequence[tuple[str, Verdict]], is_shared: bool) -> Iterator[str]:
    counts: Counter[str] = Counter()
    progress: dict[str, str] = {}
    for host, verdict in in_order:
        for words in verdict.reason.split("; ")[1:]:
            counts.update({status: int(count) for count, status in _COUNTS.findall(words)})
            if _COUNTS.sub("", words):
                words = words if is_shared else f"{host}: {words}"
                progress.setdefault(_AMOUNT.sub("", words), words)
    yield in_order[0][1].reason.partition("; ")[0]
    if counts["idle"] + counts["ok"]:
        yield all_well(counts["idle"], counts["ok"])
    yield from progress.values()


def statuses_of(host: str, rows: Iterable[WorkerStatus], age_seconds: float = 0.0) -> tuple[WorkerStatus, ...]:
    """Adds the host to each process's name. For a silent host, pass the age of `rows`: all states become `unknown`."""
    named = (replace(row, name=qualified(host, row.name)) for row in rows)
    if not age_seconds:
        return tuple(named)
    return tuple(replace(row, state="unknown", since_seconds=row.since_seconds + age_seconds) for row in named)


def joined_status(own: StatusAnswer | None, host: str, others: HostsOutcome, now: float) -> StatusAnswer:
    """Joins the answers of all hosts. `own` is the answer of `host`, which is this host. `now` is in Unix seconds. A
    silent host's last report appears only in `rows` and `workers` of the result. May be slow. Raises BadResult."""
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
    # All hosts report the same total lag, because it comes from the brokers.
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
