"""`kctl kafka consume`: prints messages."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from kctl.cli.kafka.cluster import connected, decoder, required_topics
from kctl.cli.output import as_json
from kctl.cli.table import cell
from kctl.errors import BrokerRefused, UsageError
from kctl.fields import bytes_field
from kctl.kafka.client import light_imports
from kctl.kafka.client.connection import ClusterConnection
from kctl.kafka.client.layout import require
from kctl.kafka.consume import Record, reading
from kctl.kafka.offsets import EARLIEST, log_offsets
from kctl.kafka.target import Target, is_whole, position
from kctl.terminal import bytes_writer

if TYPE_CHECKING:
    from kctl_agent.schemas.decoding import Decoder


def consume(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    decode = decoder(options, env)
    written = partial(_FORMATS[options.format], decode)
    begin_at = _place(options.from_)
    with connected(options, env) as connection:
        begin, end = _span(connection, options, begin_at)
    light_imports.complete()
    write, until = bytes_writer(), None if options.follow else end
    try:
        with reading(
            connection.access, is_read_committed=options.read_committed, timeout_seconds=options.timeout
        ) as read:
            for record in islice(read(options.topic, begin, until), options.limit):
                write(written(record) + b"\n")
                if options.follow:
                    sys.stdout.flush()
    except KeyboardInterrupt:
        if not options.follow:
            raise
    sys.stdout.flush()


def _place(text: str) -> Target:
    if text.startswith("-") and is_whole(text[1:]):
        return Target("last", int(text[1:]))
    return position(text, "-N for the last N of each partition")


def _span(
    connection: ClusterConnection, options: argparse.Namespace, begin_at: Target
) -> tuple[dict[int, int], dict[int, int]]:
    topics = required_topics(connection, [options.topic])
    topic = topics[options.topic]
    chosen = [_partition(text) for text in options.partition or ()]
    for number in chosen:
        require(topics, options.topic, number)
    keys = [(topic.name, number) for number in chosen or [each.partition for each in topic.partitions]]
    starts = log_offsets(connection, topics, keys, EARLIEST)
    ends = log_offsets(connection, topics, keys, is_read_committed=options.read_committed)
    at = log_offsets(connection, topics, keys, begin_at.number) if begin_at.kind == "time" else {}
    begin, end = {}, {}
    for key in keys:
        first, last = starts[key], ends[key]
        problem = first.error or last.error
        if problem or first.offset is None or last.offset is None:
            raise BrokerRefused(f"{key[0]}-{key[1]}: {problem or 'UNKNOWN_OFFSET'}; see `kctl kafka topic {key[0]}`")
        begin[key[1]] = begin_at.within(first.offset, last.offset, at[key].offset if key in at else None)
        end[key[1]] = last.offset
    return begin, end


def _partition(text: str) -> int:
    if not is_whole(text):
        raise UsageError(f"-p takes the number of a partition, not `{text}`")
    return int(text)


def _value(decode: Decoder | None, record: Record) -> bytes:
    found = _decoded(decode, record, "value")
    return _text(found).encode() if found else record.value or b""


def _line(decode: Decoder | None, record: Record) -> bytes:
    texts = [
        _text(found)
        if (found := _decoded(decode, record, name))
        else None
        if part is None
        else part.decode("utf-8", "replace")
        for name, part in (("key", record.key), ("value", record.value))
    ]
    place = f"{record.topic}-{record.partition}", str(record.offset), cell(record.timestamp)
    return "  ".join((*place, *map(cell, texts))).encode()


def _json(decode: Decoder | None, record: Record) -> bytes:
    document = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **bytes_field("key", record.key),
        **bytes_field("value", record.value),
        **_decoded(decode, record, "key"),
        **_decoded(decode, record, "value"),
        "headers": [{"key": name, **bytes_field("value", value)} for name, value in record.headers],
    }
    return as_json(document, in_one_line=True).encode()


def _decoded(decode: Decoder | None, record: Record, name: str) -> dict[str, Any]:
    return {} if decode is None else decode.document(name, getattr(record, name), record.headers)


def _text(found: Mapping[str, Any]) -> str:
    [value, *schema] = found.values()
    return " ".join((value if isinstance(value, str) else as_json(value, in_one_line=True), *schema))


_FORMATS: dict[str, Callable[[Decoder | None, Record], bytes]] = {"value": _value, "line": _line, "json": _json}
