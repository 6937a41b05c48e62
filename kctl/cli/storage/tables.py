"""Formats stats and dead letters for `kctl storage`, as text and as JSON."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kctl.cli.output import as_json
from kctl.cli.table import cell, clean, clip, columns, duration, render
from kctl.dead_letters.documents import dead_letter_document
from kctl.fields import moment
from kctl_agent.storage.causes import sentence_of

if TYPE_CHECKING:
    from kctl_agent.schemas.decoding import Decoder
    from kctl_agent.storage.claim import DeadLetter, DeadLetterGroup
    from kctl_agent.storage.lake.storage import LakeStorage
    from kctl_agent.storage.limits import StorageStats, TableStats

_STATES = ("pending", "processing", "delayed", "dead", "bytes")
_STATUS = columns("topic >partition >pending >processing >delayed >dead >bytes >oldest")
_COUNTS = ("version", "rows", "files", "small_files", "bytes")


def _full(stats: StorageStats | TableStats) -> str | None:
    from kctl_agent.storage.limits import why_full  # with numpy and all storages, for which `kctl --help` need not wait

    return why_full(stats)


def status_document(identity: str, stats: StorageStats) -> dict[str, Any]:
    return {
        "storage": identity,
        **{state: getattr(stats, state) for state in _STATES},
        "limit": stats.limits.messages,
        "limit_bytes": stats.limits.bytes,
        "dead_limit": stats.limits.dead,
        "free_bytes": None if stats.free is None else stats.free.bytes,
        "full": _full(stats),
        "oldest_seconds": stats.oldest_seconds,
        "partitions": [
            {name: getattr(each, name) for name in ("topic", "partition", *_STATES, "oldest_seconds")}
            for each in stats.partitions
        ],
    }


def status_lines(document: dict[str, Any]) -> list[str]:
    totals = {"topic": "(all)", "partition": None, **document}
    rows = [
        (each["topic"], each["partition"], *(each[state] for state in _STATES), duration(each["oldest_seconds"]))
        for each in (*document["partitions"], totals)
    ]
    limit = "no limit" if document["limit"] is None else f"limit {document['limit']}"
    return [f"{clean(document['storage'])}, {limit}", *_if_full(document), "", *render(_STATUS, rows)]


def _if_full(document: dict[str, Any]) -> list[str]:
    return [f"full: {clean(document['full'])}"] if document["full"] else []


def table_document(lake: LakeStorage, group: str) -> dict[str, Any]:
    """Describes a table and the stored offset of each partition of the group. Raises StorageUnusable."""
    from kctl_agent.storage.lake.dead_letters.table import DeadLetterTable

    stats, counts, dead_letters = lake.stats(), lake.count(), DeadLetterTable(lake, group)
    return {
        "storage": lake.identity,
        **{name: getattr(counts, name) for name in _COUNTS},
        "dead": dead_letters.count_dead(),
        "requeued": dead_letters.count_requeued(),
        "target_file_bytes": lake.target_file_bytes,
        "last_commit_seconds": None if counts.committed_at is None else max(time.time() - counts.committed_at, 0.0),
        "free_bytes": None if stats.free is None else stats.free.bytes,
        "full": _full(stats),
        "partitions": [
            {"cluster": owner.cluster_id, "topic": stored.topic, "partition": stored.partition, "stored": stored.next}
            for owner, stored in lake.group_offsets(group)
        ],
    }


def table_lines(document: dict[str, Any], group: str) -> list[str]:
    held = [(*(document[name] for name in (*_COUNTS, "dead", "requeued")), duration(document["last_commit_seconds"]))]
    coordinates = ("cluster", "topic", "partition", "stored")
    partitions = [tuple(each[name] for name in coordinates) for each in document["partitions"]]
    return [
        clean(document["storage"]),
        *_if_full(document),
        "",
        *render(columns(">version >rows >files >small-files >bytes >dead >requeued >last-commit"), held),
        "",
        *(
            render(columns("cluster topic >partition >stored"), partitions)
            if partitions
            else [f"the group {clean(group)} has stored nothing in it yet"]
        ),
    ]


def dead_letter_table(dead_letters: list[DeadLetter], *, is_wide: bool = False) -> list[str]:
    return render(
        columns("id topic >partition >offset >tries died error"),
        [
            (x.id, x.block.topic, x.block.partition, x.offset, x.tries, moment(x.at), _shown(x.error, is_wide))
            for x in dead_letters
        ],
    )


def group_table(groups: list[DeadLetterGroup], *, is_wide: bool = False) -> list[str]:
    rows = [
        (
            x.count,
            x.hours[-1] if x.hours else None,
            sum(x.hours),
            moment(x.last_died),
            x.newest,
            x.cause.line,
            _shown(x.cause.error_class, is_wide),
        )
        for x in groups
    ]
    return render(columns(">count >last-hour >last-day last-died newest line error-class"), rows)


def dead_letter_lines(dead_letter: DeadLetter, decoder: Decoder | None = None) -> list[str]:
    document = dead_letter_document(dead_letter, decoder=decoder)
    for name in ("key_decoded", "value_decoded"):
        if name in document:
            document[name] = as_json(document[name], in_one_line=True)
    headers = document.pop("headers", [])
    del document["error"], document["traceback"]
    wide = max(map(len, document))
    lines = [f"{name:<{wide}}  {clip(cell(value), 2000)}" for name, value in document.items()]
    lines += [f"header {clean(header['key'])}: {cell(list(header.values())[1])}" for header in headers]
    return [*lines, "", *(clean(line) for line in dead_letter.error.splitlines())]


def _shown(error: str, is_wide: bool) -> str:
    line = clean(sentence_of(error))
    return line if is_wide else clip(line, 80)
