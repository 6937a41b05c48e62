"""The dead letters of a file storage."""

import heapq
import itertools
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence

from kctl_agent.storage.block import Block
from kctl_agent.storage.causes import DeathCause
from kctl_agent.storage.claim import HOUR_SECONDS, DeadLetter, DeadLetterGroup, GroupCount
from kctl_agent.storage.numbered_dead_letters import Place
from kctl_agent.storage.selection import Selection

MOST_RUNS = 2000
_NEVER = 1e300
COLUMNS = "id, topic, topic_id, partition, first, last, count, body, tries, error, at, damaged"
OF_RUNS = {"topic", "partition", "error_class", "line"}
BEHIND = "(at, id)>(?, ?) and at>=? and at<=? order by at, id limit ?"
HOLDS = "(substr(body, 4, 1)<>x'00' or instr(body, ?))"
"""Selects blocks that may contain a text: a compressed one may contain any. The fourth byte is the codec."""


def insert(db: sqlite3.Connection, dead_letters: Collection[DeadLetter]) -> None:
    """Stores dead letters within the caller's transaction."""
    db.executemany(
        "delete from dead where topic=? and partition=? and first=? and last=? and topic_id is ?",
        ((b.topic, b.partition, b.first, b.last, b.topic_id) for b in (x.block for x in dead_letters)),
    )
    if db.execute("select 1 from dead limit 1").fetchone() is None:
        db.execute("delete from cause")
    numbers = {cause: _number(db, cause) for cause in {x.cause for x in dead_letters}}
    db.executemany(
        "insert into dead(topic, topic_id, partition, first, last, count, bytes, tries, error, at, damaged, body,"
        " cause) values (?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            (b.topic, b.topic_id, b.partition, b.first, b.last, b.count, len(b.body), x.tries, x.error, x.at,
             x.is_damaged, b.body, numbers[x.cause])
            for x in dead_letters
            for b in (x.block,)
        ),
    )  # fmt: skip


def _number(db: sqlite3.Connection, cause: DeathCause) -> int:
    known = db.execute("select id from cause where error_class=? and line=?", cause).fetchone()
    if known is None:
        known = db.execute("insert into cause(error_class, line) values (?,?) returning id", cause).fetchone()
    return int(known[0])


def delete(db: sqlite3.Connection, ids: Iterable[str]) -> None:
    db.executemany("delete from dead where id=?", [(int(id_),) for id_ in ids])


def remaining(db: sqlite3.Connection, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
    wanted = json.dumps([int(each.id) for each in dead_letters])
    found = db.execute("select id from dead where id in (select value from json_each(?))", (wanted,))
    there = {str(id_) for (id_,) in found}
    return [each for each in dead_letters if each.id in there]


def sift(db: sqlite3.Connection, selection: Selection, numbers: list[int]) -> list[int]:
    key, text = (each and each.encode() for each in (selection.key, selection.text))
    conditions, values = where(*_unindexed(selection), (HOLDS, key), (HOLDS, text), ("1=?", 1))
    of_numbers = "select id from (select value as number from json_each(?)) cross join dead on id=number"
    rows = db.execute(f"{of_numbers} where {conditions}", (json.dumps(numbers), *values))
    return [id_ for (id_,) in rows]


def _unindexed(selection: Selection) -> list[tuple[str, object]]:
    return [
        ("tries>=?", selection.tries_from),
        ("tries<=?", selection.tries_to),
        ("last>=?", selection.offset_from),
        ("first<=?", selection.offset_to),
        ("instr(cast(error as blob), ?)", selection.traceback and selection.traceback.encode()),
    ]


def read(db: sqlite3.Connection, numbers: Sequence[int]) -> Iterator[DeadLetter]:
    wanted = "(select value as number from json_each(?))"
    statement = f"select {COLUMNS} from {wanted} cross join dead on id=number"  # noqa: S608
    return map(_dead_letter, db.execute(statement, (json.dumps(numbers),)))


def places(db: sqlite3.Connection, selection: Selection, after: Place | None, limit: int) -> list[Place]:
    behind = (*(after or (0.0, 0)), selection.died_from or 0.0, selection.died_to or _NEVER, limit)
    runs = _runs(db, selection) if OF_RUNS & set(selection.named) else None
    if runs is None or len(runs) > MOST_RUNS:
        return [Place(*row) for row in db.execute(f"select at, id from dead where {BEHIND}", behind)]  # noqa: S608
    of_run = f"select at, id from dead where cause=? and topic=? and partition=? and {BEHIND}"  # noqa: S608
    found = ([Place(*row) for row in db.execute(of_run, (*run, *behind))] for run in runs)
    return list(itertools.islice(heapq.merge(*found), limit))


def _runs(db: sqlite3.Connection, selection: Selection) -> list[tuple[int, str, int]]:
    partitions = db.execute("select topic, partition from counters where state='dead' and messages>0").fetchall()
    return [(number, *tp) for number in _causes(db, selection) for tp in partitions if selection.takes_partition(*tp)]


def _causes(db: sqlite3.Connection, selection: Selection) -> dict[int, DeathCause]:
    causes = {number: DeathCause(*names) for number, *names in db.execute("select id, error_class, line from cause")}
    return {number: cause for number, cause in causes.items() if selection.takes_cause(cause)}


def groups(db: sqlite3.Connection, selection: Selection, hours: int, now: float) -> list[DeadLetterGroup]:
    causes = _causes(db, selection)
    found = {number: GroupCount(cause, hours) for number, cause in causes.items()}
    unindexed = _unindexed(selection)
    reads_all = any(value is not None for _, value in unindexed) and not OF_RUNS & set(selection.named)
    conditions, values = where(*_indexed(selection, causes), *unindexed)
    rows = db.execute(
        f"select cause, cast((? - at) / {HOUR_SECONDS} as integer) as ago, count(*), min(at), max(at), max(id)"  # noqa: S608
        f" from dead {'not indexed' if reads_all else 'indexed by dead_cause'} where {conditions} group by cause, ago",
        (now, *values),
    )
    for number, ago, count, first, newest_at, newest in rows:
        found[number].add_of_hour(count, first, newest_at, str(newest), ago)
    return [count.group() for count in found.values() if count.count]


def _indexed(selection: Selection, causes: Collection[int]) -> list[tuple[str, object]]:
    return [
        ("cause in (select value from json_each(?))", json.dumps(list(causes))),
        ("topic=?", selection.topic),
        ("partition=?", selection.partition),
        ("at>=?", selection.died_from),
        ("at<=?", selection.died_to),
    ]


def _dead_letter(row: tuple[object, ...]) -> DeadLetter:
    id_, *coordinates, tries, error, at, damaged = row
    return DeadLetter(str(id_), Block(*coordinates), tries, error, at, bool(damaged))  # type: ignore[arg-type]


def where(*clauses: tuple[str, object]) -> tuple[str, list[object]]:
    given = [(clause, value) for clause, value in clauses if value is not None]
    return " and ".join(clause for clause, _ in given), [value for _, value in given]
