"""`kctl kafka produce`: sends messages."""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kctl.cli.kafka.cluster import connected, required_topic
from kctl.cli.kafka.output import show
from kctl.errors import UsageError
from kctl.kafka.client import light_imports
from kctl.kafka.produce import DeliveryReport, Pace, Production, batch_bytes
from kctl.terminal import line_of

_ONE = ("topic", "partition", "offset", "timestamp", "bytes", "compressed_bytes")
_MANY = ("topic", "partition", "messages", "first_offset", "last_offset")
_CHECK_EVERY = 4096
_SHOW_SECONDS = 0.2
_BAR_COLUMNS = 30


def produce(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    headers = [_header(text) for text in options.header or ()]
    key = None if options.key is None else options.key.encode()
    check_source(options)
    with connected(options, env) as connection:
        required_topic(connection, options.topic, options.partition)
    light_imports.complete()
    is_bulk = is_file(options) or options.repeat > 1
    with Production(
        connection.access,
        options.topic,
        acks=options.acks,
        codec=options.codec,
        timeout_seconds=options.timeout,
        is_bulk=is_bulk and options.rate is None,
    ) as production:
        (_produce_many if is_bulk else _produce_one)(options, production, key, headers)


def _produce_one(
    options: argparse.Namespace, production: Production, key: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    value = value_of(options)
    sent = production.sent(production.send(value, key, options.partition, headers))
    row = {
        "topic": options.topic,
        "partition": sent.partition,
        "offset": None if options.acks == "0" else sent.offset,
        "timestamp": sent.timestamp,
        "bytes": batch_bytes(value, key, headers, "none"),
        "compressed_bytes": batch_bytes(value, key, headers, options.codec),
        "codec": options.codec,
    }
    show(options, _ONE, [row])


def _produce_many(
    options: argparse.Namespace, production: Production, key: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    began = time.monotonic()
    pace, size = Pace(options.rate), 0
    with line_of(sys.stderr) as write:
        with messages(options, key) as (found, total_bytes):
            show_progress = _progress(production.report, total_bytes, began, write)
            for number, (own_key, value) in enumerate(found):
                pace.wait()
                production.send(value, own_key, options.partition, headers)
                size += len(value or b"")
                show_progress()
                if number % _CHECK_EVERY == 0 and production.problem is not None:
                    break  # the rest would fail too
        production.finish(show_progress)
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
    show(options, _MANY, rows, messages=count, bytes=size, seconds=round(seconds, 3), codec=options.codec)
    if options.output == "table":
        sys.stderr.write(f"{count} messages, {size} bytes in {seconds:.1f} s: {count / seconds:,.0f} a second\n")
    if (problem := production.problem) is not None:
        raise problem


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--header takes KEY=VALUE, not `{text}`")
    return name, value.encode("utf-8", "surrogateescape")


def _progress(
    report: DeliveryReport, total_bytes: int | None, began: float, write: Callable[[str], None]
) -> Callable[[], None]:
    shown_at = began

    def show() -> None:
        nonlocal shown_at
        now = time.monotonic()
        if now >= shown_at + _SHOW_SECONDS:
            shown_at = now
            write(line(report.messages, report.bytes, total_bytes, now - began))

    return show if sys.stderr.isatty() else lambda: None


def line(messages: int, size: int, total_bytes: int | None, seconds: float) -> str:
    """Returns the progress, such as `[### ] 12% 40,000 messages 5.1 MB/s 21,000 a second 4 s left`."""
    seconds = max(seconds, 0.001)
    speed = f"{messages:,} messages  {size / seconds / 1e6:.1f} MB/s  {messages / seconds:,.0f} a second"
    if not total_bytes:
        return speed
    part = min((size + messages) / total_bytes, 1.0)  # a message has a line end in the file
    left = f"  {seconds * (1 - part) / part:,.0f} s left" if part else ""
    return f"[{'#' * int(part * _BAR_COLUMNS):<{_BAR_COLUMNS}}] {part:4.0%}  {speed}{left}"


def is_file(options: argparse.Namespace) -> bool:
    """Whether the messages are the lines of a file or of stdin."""
    return options.file is not None or options.message == "-"


def value_of(options: argparse.Namespace) -> bytes | None:
    return None if options.null else options.message.encode("utf-8", "surrogateescape")


@contextmanager
def messages(
    options: argparse.Namespace, key: bytes | None
) -> Iterator[tuple[Iterator[tuple[bytes | None, bytes | None]], int | None]]:
    """Yields an iterator of messages as (key, value), and the size of `--file` in bytes, or None if unknown."""
    if not is_file(options):
        value = value_of(options)
        yield ((key, value) for _ in range(options.repeat)), None
        return
    separator = None if options.key_separator is None else options.key_separator.encode()
    if options.file is None or options.file == "-":
        yield _lines(sys.stdin.buffer, key, separator), None
        return
    path = Path(options.file)
    try:
        file = path.open("rb")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    with file:
        yield _lines(file, key, separator), path.stat().st_size or None


def _lines(file: BinaryIO, key: bytes | None, separator: bytes | None) -> Iterator[tuple[bytes | None, bytes | None]]:
    if separator is None:
        for line in file:
            yield key, line.removesuffix(b"\n")
        return
    for number, line in enumerate(file, 1):
        before, found, after = line.removesuffix(b"\n").partition(separator)
        if not found:
            raise UsageError(f"line {number} has no `{separator.decode()}` to separate the key")
        yield before, after


def check_source(options: argparse.Namespace) -> None:
    sources = [options.message is not None, options.file is not None, options.null]
    if sum(sources) != 1:
        raise UsageError("give exactly one of MESSAGE, `-` for stdin, --file and --null")
    if options.key_separator is not None and (options.key is not None or not is_file(options)):
        raise UsageError("--key-separator reads keys from the lines of a file: it needs a file and excludes -k")
    if is_file(options) and options.repeat != 1:
        raise UsageError("--repeat is for one message, not for a file")
