"""A trial import of the handler and transform of a configuration, in a process of its own for each."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING, NamedTuple

from kctl.children import child_environment, python_module
from kctl.errors import RunDirUnusable

if TYPE_CHECKING:
    from kctl.config.sections import Config

_GRACE_SECONDS = 2.0
_SHOWN_BYTES = 8 * 1024


class Problem(NamedTuple):
    """A problem in one sentence, and the last words of the process, such as a traceback, if there are any."""

    sentence: str
    details: str = ""


def problems(config: Config, timeout_seconds: float) -> Iterator[Problem]:
    """Problems of the configured code; at most so long for each. What another user could change is not run."""
    from kctl.start.checks import check_code  # half a second of imports

    try:
        check_code(config)
    except RunDirUnusable as error:
        yield Problem(str(error))
        return
    folder = config.path.absolute().parent
    named = (
        ("handler", "sinkers.handler", config.sinkers.handler),
        (
            "batch_transform" if config.storage.kind.is_table else "transform",
            "workers.transform",
            config.workers.transform,
        ),
    )
    for kind, setting, name in named:
        if name:
            found = _imported(kind, f"{setting} {name!r}", name, folder, timeout_seconds)
            if found is not None:
                yield found


def _imported(kind: str, what: str, name: str, folder: Path, timeout_seconds: float) -> Problem | None:
    """Imports code. Output goes to files, not pipes: a process that the code leaves behind would hold those open."""
    words = kind, name, str(folder), str(timeout_seconds)
    with TemporaryFile() as answer, TemporaryFile() as output:
        process = subprocess.Popen(
            python_module("kctl_agent.user_code", *words),
            env=child_environment(),
            stdin=subprocess.DEVNULL,
            stdout=answer,
            stderr=output,
            start_new_session=True,
        )
        began = time.monotonic()
        try:
            code = process.wait(timeout_seconds + _GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        answer.seek(0)
        reply = answer.read().decode()
        sentence = reply.strip()
        if not reply:
            end = f"signal {-code}, {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            sentence = f"the import of {what} ends the process: {end}"
        if time.monotonic() - began >= timeout_seconds:
            sentence = f"{what} is not imported within {timeout_seconds:g} s"
        return Problem(sentence, _end_of(output)) if sentence else None


def _end_of(output: IO[bytes]) -> str:
    size = output.seek(0, os.SEEK_END)
    output.seek(max(0, size - _SHOWN_BYTES))
    return output.read().decode("utf-8", "replace").strip()
