"""`kctl checkpoint show`: shows a query's lag."""

import argparse
from collections.abc import Mapping
from typing import Any

from kctl.checkpoints.checkpoint import Checkpoint, Finding, place, read, starts
from kctl.checkpoints.logs import Row, findings, read_rows, unasked
from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show as show_rows
from kctl.cli.output import echo
from kctl.cli.table import cell
from kctl.errors import KctlError
from kctl.fields import moment

_COLUMNS = ("topic", "partition", "next_offset", "log_start", "log_end", "lag", "record_time", "verdict")
_SHUFFLE = "spark.sql.shuffle.partitions"
_STATE = "spark.sql.streaming.stateStore.providerClass"
_WORDS = {
    True: "Spark would start from it",
    False: "Spark would not start from it",
    None: "it is unknown whether Spark would start from it",
}
_EXIT_CODES = {True: 0, False: 1, None: 3}


def show(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    checkpoint = read(place(options.uri))
    problems: list[KctlError] = []
    with connected(options, env) as connection:
        try:
            rows = read_rows(connection, checkpoint, options.topic or (), is_read_committed=options.read_committed)
        except KctlError as error:
            rows, problems = unasked(checkpoint, options.topic or ()), [error]
    found = (*checkpoint.findings, *findings(rows))
    document = _document(checkpoint, found)
    if options.output == "table":
        echo("\n".join(_head(checkpoint, document)))
    show_rows(options, _COLUMNS, [_row(row) for row in rows], problems, **document)
    return _EXIT_CODES[starts(found)]


def _row(row: Row) -> dict[str, Any]:
    fields = row._asdict()
    return {**fields, "record_time": instant(fields.pop("record_at"))}


def instant(seconds: float | None) -> str | None:
    return None if seconds is None else moment(seconds)


def _document(checkpoint: Checkpoint, found: tuple[Finding, ...]) -> dict[str, Any]:
    return {
        "uri": checkpoint.uri,
        "query_id": checkpoint.query_id,
        "planned_batch": checkpoint.planned,
        "planned_at": instant(checkpoint.planned_at),
        "committed_batch": checkpoint.committed,
        "committed_at": instant(checkpoint.committed_at),
        "sources": [None if each is None else sorted({topic for topic, _ in each}) for each in checkpoint.sources],
        "watermark": instant(checkpoint.watermark_ms / 1000) if checkpoint.watermark_ms else None,
        "conf": dict(checkpoint.conf),
        "would_start": starts(found),
        "findings": [each._asdict() for each in found],
    }


def _head(checkpoint: Checkpoint, document: Mapping[str, Any]) -> list[str]:
    conf, found = checkpoint.conf, document["findings"]
    sources = ["not Kafka" if each is None else ",".join(each) or "no partitions" for each in document["sources"]]
    batches = [
        f"{word} batch {cell(document[f'{word}_batch'])} at {cell(document[f'{word}_at'])}"
        for word in ("planned", "committed")
    ]
    return [
        f"{_WORDS[document['would_start']]}{':' if found else ''}",
        *(f"  {each['text']}" for each in found),
        "  ".join([f"query {cell(checkpoint.query_id)}", *batches]),
        f"sources {cell('; '.join(sources))}  watermark {cell(document['watermark'])}  "
        f"shuffle partitions {cell(conf.get(_SHUFFLE))}  state store {cell(conf.get(_STATE, '').rpartition('.')[2])}",
    ]
