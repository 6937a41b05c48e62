"""The progress of a fetch, for a person: a bar on a terminal, else a plain line every few jars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from kctl.jars.fetcher import Fetched
from kctl.terminal import plain

_PLAIN_LINE_EVERY_JARS = 20


@contextmanager
def shown_on(stream: TextIO) -> Iterator[Callable[[Fetched], None]]:
    """Yields a `progress` for `fetch` that writes to `stream` (meant: stderr) as long as the block lasts."""
    if not stream.isatty():
        yield lambda fetched: _write_line(stream, fetched)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(file=plain(stream)))
    task = bar.add_task("jars", total=None)

    def show(fetched: Fetched) -> None:
        bar.start()  # not before: usually nothing is to be fetched
        text = f"jars {fetched.jars}/{fetched.jars_total}"
        bar.update(task, description=text, completed=fetched.bytes, total=fetched.bytes_total)

    try:
        yield show
    finally:
        bar.stop()


def _write_line(stream: TextIO, fetched: Fetched) -> None:
    megabytes = f"{fetched.bytes / 1e6:.0f} of {fetched.bytes_total / 1e6:.0f} MB"
    if fetched.jar is None:
        stream.write(f"jars: downloading {fetched.jars_total} ({fetched.bytes_total / 1e6:.0f} MB)\n")
    elif fetched.jars % _PLAIN_LINE_EVERY_JARS == 0 or fetched.jars == fetched.jars_total:
        stream.write(f"jars: {fetched.jars} of {fetched.jars_total}, {megabytes}\n")
    stream.flush()
