"""Protects the operator's terminal from control characters in foreign text, such as messages, names, errors and log
lines. Within `guarded`, everything that is printed on a terminal is escaped."""

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO, cast

_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def shown(text: str, kept: str = "\n\t") -> str:
    r"""Escapes every character that a terminal would act on or not show, such as control characters, bidirectional
    overrides, line separators and lone surrogates. Does not escape `kept`. The escapes are JSON's (`\u001b`), so a
    JSON document keeps its meaning."""
    if text.isprintable():
        return text
    if "\n" in kept:
        return "\n".join(line if line.isprintable() else _escaped(line, kept) for line in text.split("\n"))
    return _escaped(text, kept)


def _escaped(text: str, kept: str) -> str:
    return "".join(each if _is_harmless(each) or each in kept else _escape(each) for each in text)


def _is_harmless(character: str) -> bool:
    # `isprintable` rejects wide spaces.
    return character.isprintable() or (character >= "\xa0" and character.isspace() and character not in "\u2028\u2029")


def _escape(character: str) -> str:
    if character in _SHORT:
        return _SHORT[character]
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))


class _Guarded(io.TextIOBase):
    # Without `buffer`, because bytes would bypass the escapes.

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self.stream.errors

    def write(self, text: str) -> int:
        self.stream.write(shown(text))
        return len(text)

    def flush(self) -> None:
        self.stream.flush()

    def fileno(self) -> int:
        return self.stream.fileno()

    def isatty(self) -> bool:
        return True

    def writable(self) -> bool:
        return True


@contextmanager
def guarded() -> Iterator[None]:
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_guard, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def _guard(stream: TextIO) -> TextIO:
    is_terminal = not isinstance(stream, _Guarded) and stream.isatty()
    return cast(TextIO, _Guarded(stream)) if is_terminal else stream


def plain(stream: TextIO) -> TextIO:
    """Returns the unguarded stream, for kctl's own control sequences. Pass other text through `shown` first."""
    return stream.stream if isinstance(stream, _Guarded) else stream


@contextmanager
def line_of(stream: TextIO) -> Iterator[Callable[[str], None]]:
    """Yields a function that replaces the terminal's current line. The end of the `with` block clears the line. Without
    a terminal, the function does not write."""
    if not stream.isatty():
        yield lambda _text: None
        return
    steered = plain(stream)

    def show(text: str) -> None:
        steered.write(f"\r{shown(text, kept='')}\x1b[K")
        steered.flush()

    try:
        yield show
    finally:
        show("")


def bytes_writer() -> Callable[[bytes], object]:
    """Returns a function that writes bytes to stdout. If stdout is a terminal, the function decodes them first."""
    if sys.stdout.isatty():
        return lambda data: sys.stdout.write(data.decode("utf-8", "replace"))
    return sys.stdout.buffer.write
