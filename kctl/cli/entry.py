"""The entry point of the command line, from words to an exit code: picks the parser, prints errors in one sentence.

`kctl rpc`, `kctl status` and `kctl kafka` are parsed by argparse: Typer, and pydantic with which it converts values,
take 150 ms to import, far more than a whole `kctl rpc` (benchmarks/cli_start.py). Everything else is Typer's, and all
help pages.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kctl import __version__
from kctl.errors import KctlError
from kctl.terminal import guarded
from kctl_agent.errors import AgentError

__all__ = ["BROKEN_PIPE", "INTERRUPTED", "before_command", "run", "run_process"]

INTERRUPTED = 130
_GARBAGE_THRESHOLD = 100_000
"""New objects after which Python looks for cyclic garbage: by default 700, and thousands of rows, which are none, would
be visited again and again: a twentieth of `kctl kafka lag`."""
QUICK = (["rpc"], ["kafka"], ["status"])
"""Commands that are parsed and run without Typer."""
BROKEN_PIPE = 141
"""Exit code as of a process that SIGPIPE (13) has ended: the reader has closed its end."""


def run_process() -> int:
    """Runs this process's command line; returns the exit code, or ends the process with it if it must be fast."""
    words = before_command(sys.argv[1:])[1]
    is_quick = words[:1] in QUICK
    if is_quick:
        gc.set_threshold(_GARBAGE_THRESHOLD)
        if not any(word.startswith(("-b", "--b")) for word in words):  # with -b `kctl kafka` reads no configuration
            _import_msgspec()
    code = run()
    if is_quick:
        _leave(code)
    return code


def _import_msgspec() -> None:
    """Imports msgspec without typing_extensions: it takes from there, where that is installed, what Python has had
    since 3.11, a twenty-fifth of a whole `kctl rpc`."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # Python's own word for "not to be had"
        importlib.import_module("msgspec")
        del sys.modules["typing_extensions"]


def run(arguments: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """Runs a command line, this process's by default; returns the exit code."""
    with guarded():
        return _run_guarded(arguments, env)


def _run_guarded(arguments: Sequence[str] | None, env: Mapping[str, str]) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    options, rest = before_command(words)
    debug = "--debug" in options or env.get("KCTL_DEBUG") == "1"
    try:
        code = _run(words, options, rest, env)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is still buffered must not fail once more when Python flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if debug:
            import traceback  # 3 ms

            traceback.print_exc()
        return _print_error(error)
    return code


def before_command(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Splits off the global options in front of the command from the rest, which begins with the command."""
    options: dict[str, str] = {}
    left = list(words)
    while left and left[0].startswith("-"):
        word = left.pop(0)
        name, equals, value = word.partition("=")
        if name in ("-c", "--config"):
            options["--config"] = value if equals else left.pop(0) if left else ""
        elif word.startswith("-c"):
            options["--config"] = word[2:]
        else:
            options[word] = ""
    return options, left


def _leave(code: int) -> None:
    """Ends the process at once: the commands that must be fast hold nothing by now. To take all modules apart, as
    Python does at its end, is a tenth of a whole `kctl kafka lag`."""
    try:
        sys.stdout.flush()
    except OSError:
        return  # Python reports at its end what cannot be written
    sys.stderr.flush()
    os._exit(code)


def _run(words: list[str], options: dict[str, str], rest: list[str], env: Mapping[str, str]) -> int:
    if "--version" in options:
        sys.stdout.write(f"kctl {__version__}\n")
        return 0
    asks_help = not {"-h", "--help"}.isdisjoint(rest[: rest.index("--")] if "--" in rest else rest)
    if (
        rest[:1] in QUICK
        and not asks_help
        and options.keys() <= {"--config", "--debug"}
        and "_KCTL_COMPLETE" not in env
    ):
        config = Path(options["--config"]) if options.get("--config") else None
        if rest[0] == "rpc":
            from kctl.cli.fleet import rpc

            return rpc.run(rest[1:], config, env)
        if rest[0] == "status":
            from kctl.cli.fleet import status

            return status.run(rest[1:], config, env)
        from kctl.cli.kafka import parser as kafka

        return kafka.run(rest[1:], config, env)
    from kctl.cli import app

    return app.run(words, rest[0] if rest else None, env)


def _print_error(error: Exception) -> int:
    if isinstance(error, KctlError):
        code, text = error.exit_code, str(error)
    elif isinstance(error, AgentError):
        code, text = 2 if error.code == "storage_misconfigured" else 1, str(error)
    else:
        code, text = 1, f"a defect in kctl, {type(error).__name__}: {error}; `kctl --debug …` shows where"
    sys.stdout.flush()
    sys.stderr.write(f"kctl: {text}\n")
    return code
