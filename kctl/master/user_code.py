"""Checks that the configured handler and transform are safe, and can be imported, each in its own process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from kctl.children import child_environment, python_module
from kctl.errors import ConfigError
from kctl.ownership import check_mode, refuse_others

if TYPE_CHECKING:
    from kctl.config.sections import Config

_GRACE_SECONDS = 2.0
_SHOWN_BYTES = 8 * 1024


def check_code(config: Config) -> None:
    """If a handler or transform is set, checks that its code and the configuration's folder are not world-writable. As
    root, also checks that no other user can change them. Raises RunDirUnusable or ConfigError."""
    for setting, name in (("sinkers.handler", config.sinkers.handler), ("workers.transform", config.workers.transform)):
        for each in _code_of(name, config.path.parent) if name else ():
            if each.exists():
                refuse_others(each)
                check_mode(setting, each, stat.S_IMODE(each.stat().st_mode))


def _code_of(name: str, folder: Path) -> Iterator[Path]:
    yield folder
    for part in name.partition(":")[0].split("."):
        folder /= part
        yield from (folder, Path(f"{folder}.py"))


def check_handler(config: Config, timeout_seconds: float) -> None:
    """Imports the handler, after `check_code`. If that fails, writes the traceback to stderr and raises ConfigError."""
    check_code(config)  # never run code that another user could change
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
