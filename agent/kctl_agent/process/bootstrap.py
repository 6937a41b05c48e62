"""Starts a kctl process with settings from the first line of stdin. The log and the agent start first, and can
show where a later step hangs. The log ends with the reason for the exit.

Exit codes:
- 0: stopped as requested
- 78 (EX_CONFIG): cannot start as configured, or a worker was fenced
- 1: any other reason
"""

import importlib
import inspect
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from kctl_agent.errors import AgentError, BadParams
from kctl_agent.paths import prepare_run_dir
from kctl_agent.process.outages import outage
from kctl_agent.process.tracebacks import indented, named, traceback_of
from kctl_agent.replies.workers import Scope
from kctl_agent.rpc.commands import AgentCommand, with_describe
from kctl_agent.rpc.operations import Inbox, scope_of
from kctl_agent.rpc.server import AgentServer
from kctl_agent.storage.base import StorageMisconfigured

_LOG = logging.getLogger(__name__)

EX_CONFIG = 78  # the master does not restart a process with this exit code


class BootstrapError(AgentError, code="bootstrap_failed"):
    """A process cannot start with its configuration, so it exits with 78."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """Settings from stdin, which the control plane has already validated."""

    name: str
    run_dir: Path
    scratch_dir: Path
    log_level: str
    paused: tuple[Scope, ...] = ()


_S = TypeVar("_S", bound=ProcessSettings)


def begin(
    kind: str,
    parse: Callable[[str], _S],
    commands: Callable[[Inbox], Mapping[str, AgentCommand]],
    serve: Callable[[_S, AgentServer, Inbox], int],
) -> int:
    """Starts the agent and returns `serve`'s exit code. On an error, returns EX_CONFIG, or 1 if a restart may help."""
    sys.setswitchinterval(0.0005)  # while the agent waits; Python's default of 5 ms was the agent's p99
    os.umask(0o077)  # only this user may read files of the process, of Spark and of the user's handler
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the master handles a terminal's Ctrl-C
    try:
        settings = parse(sys.stdin.readline())
    except BootstrapError as error:
        sys.stderr.write(f"kctl {kind}: {error}\n")
        return EX_CONFIG
    formatter = logging.Formatter("%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime  # as the log of the master
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    logging.basicConfig(level=settings.log_level, handlers=[handler], force=True)
    try:
        settings.scratch_dir.mkdir(parents=True, exist_ok=True)
        prepare_run_dir(settings.run_dir)
        inbox = Inbox(settings.paused)
        with AgentServer(settings.run_dir, settings.name, with_describe(commands(inbox))) as server:
            return serve(settings, server, inbox)
    except (BootstrapError, OSError) as error:
        log_trace(error, OSError)
        _LOG.error("cannot start: %s", error)
        return EX_CONFIG if outage(error) is None else 1
    except AgentError as error:
        _LOG.error("%s", error)
        return 1


def leave(code: int) -> NoReturn:
    """Ends the process, even if threads of Spark, kafka-python or the user's code are running."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def left(log: logging.Logger, code: int, why: str) -> int:
    """Logs why the process ends and returns `code`. `kctl status` shows this last line of the log."""
    log.log(logging.ERROR if why else logging.INFO, "%s", why or "left")
    return code


def log_trace(error: BaseException, *expected: type[Exception]) -> None:
    """Logs a traceback at ERROR, but at DEBUG for an AgentError or an `expected` error. An error from the import of the
    user's module is always logged at ERROR."""
    cause = error.__cause__ if isinstance(error, BootstrapError) else None
    is_plain = cause is None and isinstance(error, (AgentError, *expected))
    trace = traceback_of(cause or error, own_frames=cause is None)
    _LOG.log(logging.DEBUG if is_plain else logging.ERROR, "%s", indented("traceback:", trace))


def loaded(setting: str, name: str, folder: Path | None) -> Any:
    """Imports `module:attribute`, from `folder` first. If it is a class, returns an instance. Raises BootstrapError."""
    if folder is not None and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    module, _, attribute = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
        return found() if inspect.isclass(found) else found
    except (Exception, SystemExit) as error:  # the user's module may raise anything at its import
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if not absent or not f"{module}.".startswith(f"{absent}."):  # or another module that it imports
            raise BootstrapError(f"{setting} {name!r} cannot be loaded: {named(error)}") from error
        place = "" if folder is None else f" in {folder} (the folder of the configuration)"
        ending = "; leave .py out" if module.endswith(".py") else ""
        why = f"there is no module {module}{place}, and none is installed{ending}"
        raise BootstrapError(f"{setting} {name!r}: {why}") from None


def decoded(line: str) -> dict[str, Any]:
    given = json.loads(line)
    folders = {name: Path(given[name]) for name in ("run_dir", "scratch_dir")}
    return {**given, **folders, "paused": tuple(map(scope_of, given.get("paused", ())))}


@contextmanager
def fitting(kind: str) -> Iterator[None]:
    try:
        yield
    except json.JSONDecodeError as error:
        raise BootstrapError(f"the settings on stdin are not JSON: {error}") from error
    except StorageMisconfigured as error:
        raise BootstrapError(str(error)) from error
    except KeyError as error:
        raise BootstrapError(f"the settings on stdin lack {error}") from error
    except (TypeError, BadParams) as error:
        raise BootstrapError(f"the settings on stdin do not fit this {kind}: {error}") from error
