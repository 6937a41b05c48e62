"""`kctl kafka produce`"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.options import CODECS
from kctl.cli.kafka.output import show
from kctl.cli.kafka.progress import Progress
from kctl.errors import UsageError

if TYPE_CHECKING:
    from kctl.kafka.produce import Production

__all__ = ["run"]

_ONE = (
    ("topic", False),
    ("partition", True),
    ("offset", True),
    ("timestamp", True),
    ("bytes", True),
    ("compressed_bytes", True),
)
_MANY = (("topic", False), ("partition", True), ("messages", True), ("first_offset", True), ("last_offset", True))
_LOOK_EVERY = 4096


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    codec = _codec(options.codec)
    headers = [_header(text) for text in options.header or ()]
    key = None if options.key is None else options.key.encode()
    is_file = options.file is not None or options.message == "-"
    _check(options, is_file)
    with connected(options, env) as connection:
        from kctl.kafka.layout import require, topics_of

        require(topics_of(connection.open([options.topic])), options.topic, options.partition)
        reached = connection.access
    from kctl.kafka import lean

    lean.complete()
    from kctl.kafka.produce import Pace, Production, batch_bytes

    is_bulk = is_file or options.repeat > 1
    with Production(
        reached,
        options.topic,
        acks=options.acks,
        codec=codec,
        timeout_seconds=options.timeout,
        is_bulk=is_bulk and options.rate is None,
    ) as production:
        if not is_bulk:
            value = None if options.null else options.message.encode("utf-8", "surrogateescape")
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
            return 0
        began = time.monotonic()
        pace = Pace(options.rate)
        with _messages(options, key) as (messages, total_bytes):
            progress = Progress(production, total_bytes, began)
            handed_over = _send_all(production, messages, options.partition, headers, pace.wait, progress.show)
        accounts = production.finish(progress.show if progress.is_shown else None)
        progress.clear()
        seconds = time.monotonic() - began
        problem = production.problem
    rows = [
        {
            "topic": options.topic,
            "partition": partition,
            "messages": account.messages,
            "first_offset": account.first,
            "last_offset": account.last,
        }
        for partition, account in accounts.items()
    ]
    count = sum(row["messages"] for row in rows)
    show(options, _MANY, rows, messages=count, bytes=handed_over, seconds=round(seconds, 3), codec=codec)
    if options.output == "table":
        sys.stderr.write(f"{count} messages, {handed_over} bytes in {seconds:.1f} s: {count / seconds:,.0f} a second\n")
    if problem is not None:
        raise problem
    return 0


def _send_all(
    production: Production,
    messages: Iterable[tuple[bytes | None, bytes | None]],
    partition: int | None,
    headers: list[tuple[str, bytes]],
    wait: Callable[[], None],
    show: Callable[[], None],
) -> int:
    """How many bytes of values were handed over. Stops at the first message that has failed for good: what follows
    would fail like it."""
    send = production.send
    size = 0
    for number, (key, value) in enumerate(messages):
        wait()
        send(value, key, partition, headers)
        size += len(value or b"")
        show()
        if number % _LOOK_EVERY == 0 and production.problem is not None:
            break
    return size


@contextmanager
def _messages(
    options: argparse.Namespace, key: bytes | None
) -> Iterator[tuple[Iterator[tuple[bytes | None, bytes | None]], int | None]]:
    """The messages as (key, value), and how many bytes the file has, where that is known."""
    if options.file is None and options.message != "-":
        value = None if options.null else options.message.encode("utf-8", "surrogateescape")
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
            raise UsageError(f"line {number} has no `{separator.decode()}` that would separate a key")
        yield before, after


def _check(options: argparse.Namespace, is_file: bool) -> None:
    sources = [options.message is not None, options.file is not None, options.null]
    if sum(sources) != 1:
        raise UsageError("say what to produce: a MESSAGE, `-` for stdin, --file or --null, one of them")
    if options.key_separator is not None and (options.key is not None or not is_file):
        raise UsageError("--key-separator takes the keys from the lines of a file: not with -k, nor without a file")
    if is_file and options.repeat != 1:
        raise UsageError("--repeat is for one message, not for a file")
    if options.repeat < 1:
        raise UsageError("--repeat takes 1 or more")


def _codec(text: str | None) -> str:
    if text is None:
        return CODECS[0]
    if text in CODECS:
        return text
    if text.isdecimal() and int(text) < len(CODECS):
        return CODECS[int(text)]
    raise UsageError(
        f"`{text}` is no codec: there are {', '.join(CODECS)}, or 0 to 4; the configuration is --config here"
    )


def _header(text: str) -> tuple[str, bytes]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--header takes KEY=VALUE, not `{text}`")
    return name, value.encode("utf-8", "surrogateescape")
