"""The source of messages for `kctl kafka produce`: its words, a file or stdin."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kctl.errors import UsageError


def is_file(options: argparse.Namespace) -> bool:
    """Whether each line of a file, or of stdin, is a message."""
    return options.file is not None or options.message == "-"


def value_of(options: argparse.Namespace) -> bytes | None:
    """Returns the value of the one message that is no file's."""
    return None if options.null else options.message.encode("utf-8", "surrogateescape")


@contextmanager
def messages(
    options: argparse.Namespace, key: bytes | None
) -> Iterator[tuple[Iterator[tuple[bytes | None, bytes | None]], int | None]]:
    """Returns the messages as (key, value), and how many bytes the file has, where that is known."""
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
            raise UsageError(f"line {number} has no `{separator.decode()}` that would separate a key")
        yield before, after


def check_source(options: argparse.Namespace) -> None:
    """Refuses what names no source of messages, or two. Raises UsageError: there is no source, there are two, or an
    option does not fit to it."""
    sources = [options.message is not None, options.file is not None, options.null]
    if sum(sources) != 1:
        raise UsageError("give what to produce: a MESSAGE, `-` for stdin, --file or --null, one of them")
    if options.key_separator is not None and (options.key is not None or not is_file(options)):
        raise UsageError("--key-separator takes the keys from the lines of a file: not with -k, nor without a file")
    if is_file(options) and options.repeat != 1:
        raise UsageError("--repeat is for one message, not for a file")
    if options.repeat < 1:
        raise UsageError("--repeat takes 1 or more")
