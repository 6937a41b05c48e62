"""Checks that the configured handler and transform can be imported, each in its own process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from kctl.children import child_environment, python_module
from kctl.errors import ConfigError

if TYPE_CHECKING:
    from kctl.config.sections import Config

_GRACE_SECONDS = 2.0
_SHOWN_BYTES = 8 * 1024


def check_handler(config: Config, timeout_seconds: float) -> None:
    """Imports the handler. If that fails, writes the traceback to stderr and raises ConfigError."""
    _check("handler", "sinkers.handler", config.sinkers.handler, config, timeout_seconds)


def check_transform(config: Config, timeout_seconds: float) -> None:
    """Imports the transform and, in a Spark session, calls it with no records. If that fails, writes the traceback to
    stderr and raises ConfigError."""
    of_table = "typed_transform" if config.kafka.value_format == "avro" else "batch_transform"
    kind = of_table if config.storage.kind.is_table else "transform"
    _check(kind, "workers.transform", config.workers.transform, config, timeout_seconds)


def _check(kind: str, setting: str, name: str, config: Config, timeout_seconds: float) -> None:
    if not name:
        return
    what = f"{setting} {name!r}"
    words = kind, name, str(config.path.absolute().parent), str(timeout_seconds)
    # Not pipes, which would stay open if the code leaves a process behind.
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
            sentence = f"the import of {what} takes longer than {timeout_seconds:g} s"
        if sentence:
            output.seek(max(0, output.seek(0, os.SEEK_END) - _SHOWN_BYTES))
            details = output.read().decode("utf-8", "replace").strip()
            sys.stderr.write(f"{details}\n\n" if details else "")
            raise ConfigError(sentence)
