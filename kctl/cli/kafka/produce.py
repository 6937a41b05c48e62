"""`kctl kafka produce`"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.commands import CODECS
from kctl.cli.kafka.output import show
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.kafka.client.access import ClusterAccess
    from kctl.kafka.produce import Production

_ONE = ("topic", "partition", "offset", "timestamp", "bytes", "compressed_bytes")
_MANY = ("topic", "partition", "messages", "first_offset", "last_offset")
_CHECK_EVERY = 4096


def produce(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    codec = _codec(options.codec)
    headers = [_header(text) for text in options.header or ()]
    key = None if options.key is None else options.key.encode()
    check_source(options)
    access = _access(options, env)
    from kctl.kafka.client import light_imports

    light_imports.complete()
    from kctl.kafka.produce import Production

    is_bulk = is_file(options) or options.repeat > 1
    with Production(
        access,
        options.topic,
        acks=options.acks,
        codec=codec,
        timeout_seconds=options.timeout,
        is_bulk=is_bulk and options.rate is None,
    ) as production:
        (_produce_many if is_bulk else _produce_one)(options, production, key, headers, codec)
    return 0


def _access(options: argparse.Namespace, env: Mapping[str, str]) -> ClusterAccess:
    """Returns access to the brokers, which have the topic and the partition."""
    with connected(options, env) as connection:
        from kctl.kafka.client.layout import require, topics_of

        require(topics_of(connection.open([options.topic])), options.topic, options.partition)
        return connection.access


def _produce_one(
    options: argparse.Namespace,
    production: Production,
    key: bytes | None,
    headers: list[tuple[str, bytes]],
    codec: str,
) -> None:
    from kctl.kafka.produce import batch_bytes

    value = value_of(options)
    sent = production.sent(production.send(value, key, options.partition, headers))
    row = {
        "topic": options.topic,
        "partition": sent.partition,
        "offset": None if options.acks == "0" else sent.offset,
        "timestamp": sent.timestamp,
        "bytes": batch_bytes(value, key, headers, "none"),
        "compressed_bytes": batch_bytes(value, key, headers, codec),
        "codec": codec,
    }
    show(options, _ONE, [row])


def _produce_many(
    options: argparse.Namespace,
    production: Production,
    key: bytes | None,
    headers: list[tuple[str, bytes]],
    codec: str,
) -> None:
    """Sends what a file or stdin holds, with progress, and reports it. Raises KctlError after the report, when messages
    were not acknowledged."""
    from kctl.kafka.delivery import Pace

    began = time.monotonic()
    pace = Pace(options.rate)
    with messages(options, key) as (found, total_bytes):
        progress = ProgressLine(production.report, total_bytes, began)
        size = _send_all(production, found, options.partition, headers, pace.wait, progress.show)
    production.finish(progress.show if progress.is_shown else None)
    progress.clear()
    seconds = time.monotonic() - began
    rows = [
        {
            "topic": options.topic,
            "partition": number,
            "messages": partition.messages,
            "first_offset": partition.first,
            "last_offset": partition.last,
        }
        for number, partition in production.report.partitions().items()
    ]
    count = production.report.messages
    show(options, _MANY, rows, messages=count, bytes=size, seconds=round(seconds, 3), codec=codec)
    if options.output == "table":
        sys.stderr.write(f"{count} messages, {size} bytes in {seconds:.1f} s: {count / seconds:,.0f} a second\n")
    if (problem := production.problem) is not None:
        raise problem


def _send_all(
    production: Production,
    messages: Iterable[tuple[bytes | None, bytes | None]],
    partition: int | None,
    headers: list[tuple[str, bytes]],
    wait: Callable[[], None],
    show: Callable[[], None],
) -> int:
    """Sends messages; returns how many bytes of values were handed over. Stops at the first message that has failed for
    good: what follows would fail like it."""
    send = production.send
    size = 0
    for number, (key, value) in enumerate(messages):
        wait()
        send(value, key, partition, headers)
        size += len(value or b"")
        show()
        if number % _CHECK_EVERY == 0 and production.problem is not None:
            break
    return size


def _codec(text: str | None) -> str:
    if text is None:
        return CODECS[0]
    if text in CODECS:
        return text
    if text.isdecimal() and int(text) < len(CODECS):
        return CODECS[int(text)]
    raise UsageError(f"`{text}` is no codec: there are {', '.join(CODECS)}, or 0 to 4")


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--header takes KEY=VALUE, not `{text}`")
    return name, value.encode("utf-8", "surrogateescape")
