"""Runs a command line to an exit code; an error becomes one sentence.

Commands are imported when used and parsed by argparse: the smallest command took 358 ms with Typer 0.29, and takes 64
ms now.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Mapping, Sequence

from kctl import __version__
from kctl.errors import KctlError
from kctl.operations import COMMANDS as OPERATIONS
from kctl.terminal import guarded
from kctl_agent.errors import AgentError

INTERRUPTED = 130
_GARBAGE_THRESHOLD = 100_000
"""With Python's default of 700 new objects, the garbage collector takes a twentieth of the time of `kctl kafka lag`."""
_QUICK = frozenset({"rpc", "status", "kafka", *OPERATIONS})
"""Commands that have released everything when they end."""
_OF_SPARK = frozenset({"msgpack", "pandas", "pyarrow", "pyspark", "zlib_ng"})
BROKEN_PIPE = 141
"""The exit code of a process that ended by SIGPIPE (13)."""


def run_process() -> int:
    """Returns the exit code, or exits at once if the command must be fast."""
    words = before_command(sys.argv[1:])[1]
    is_quick = not _QUICK.isdisjoint(words[:1])
    if is_quick:
        gc.set_threshold(_GARBAGE_THRESHOLD)
        if not any(word.startswith(("-b", "--b")) for word in words):  # with -b `kctl kafka` reads no configuration
            _import_msgspec()
    code = run()
    if is_quick:
        _leave(code)
    return code


def _import_msgspec() -> None:
    """Makes msgspec import without typing_extensions, which it does not need since Python 3.11: saves 4 % of `kctl
    rpc`."""
    if "typing_extensions" not in sys.modules:
        sys.modules["typing_extensions"] = None  # type: ignore[assignment]  # makes its import fail
        importlib.import_module("msgspec")
        del sys.modules["typing_extensions"]


@guarded()
def run(arguments: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """By default, runs this process's command line; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words, env)
        sys.stdout.flush()
    except BrokenPipeError:
        # Python's flush at exit must not fail again on what is still buffered.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if "--debug" in before_command(words)[0] or env.get("KCTL_DEBUG") == "1":
            import traceback  # 3 ms

            traceback.print_exc()
        return _print_error(error)
    return code


def before_command(words: Sequence[str]) -> tuple[dict[str, str], list[str]]:
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
    """Skips the teardown of modules, which takes a tenth of `kctl kafka lag`."""
    try:
        sys.stdout.flush()
    except OSError:
        return  # Python reports it at exit
    sys.stderr.flush()
    os._exit(code)


def _run(words: list[str], env: Mapping[str, str]) -> int:
    options, rest = before_command(words)
    if "--version" in options:
        sys.stdout.write(f"kctl {__version__}\n")
        return 0
    from kctl.cli import app

    if shell := env.get("_KCTL_COMPLETE"):
        from kctl.cli.completion import complete

        sys.stdout.writelines(f"{each}\n" for each in complete(app.tree(), words, shell))
        return 0
    return app.run(options, rest, env)


def _print_error(error: Exception) -> int:
    if isinstance(error, KctlError):
        code, text = error.exit_code, str(error)
    elif isinstance(error, AgentError):
        code, text = 2 if error.code == "storage_misconfigured" else 1, str(error)
    elif isinstance(error, ModuleNotFoundError) and error.name in _OF_SPARK:
        code, text = 2, f"this needs the package {error.name}, which is not installed: pip install 'kctl[spark]'"
    else:
        code, text = 1, f"a defect in kctl, {type(error).__name__}: {error}; `kctl --debug …` shows where"
    sys.stdout.flush()
    sys.stderr.write(f"kctl: {text}\n")
    return code
