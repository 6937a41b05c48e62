"""`kctl rpc <command>`: ask the master once, or again and again. Kept apart from Typer, because it must be fast."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kctl import fleets
from kctl.cli.fleet.ask import ask, incomplete, remark
from kctl.cli.fleet.tables import OLD_SECONDS, TABLES
from kctl.cli.fleet.threshold import THRESHOLDS, check
from kctl.cli.output import as_json, as_yaml, whole
from kctl.cli.parsing import Parser, seconds
from kctl.cli.table import clean
from kctl.cli.times import duration
from kctl.errors import IncompleteAnswer, KctlError, UsageError
from kctl_agent.rpc.messages import reducer_method

if TYPE_CHECKING:
    from kctl.rpc.reply import Reply

__all__ = ["parser", "run"]

_OUTPUTS = ("table", "wide", "json", "yaml")
_WATCH_SECONDS = 2.0
_TIMEOUT_SECONDS = 5.0


def parser() -> argparse.ArgumentParser:
    """The options of `kctl rpc`; Typer prints their help and completes them."""
    rpc = Parser(prog="kctl rpc", allow_abbrev=False, add_help=False)
    option = rpc.add_argument
    option("command", nargs="?", metavar="COMMAND")
    option("-o", "--output", choices=_OUTPUTS, default="table")
    option("--watch", nargs="?", type=seconds, const=_WATCH_SECONDS)
    option("--timeout", type=seconds, default=_TIMEOUT_SECONDS)
    option("--worker")
    option("--fail-above", type=int)
    option("-c", "--config", type=Path)
    return rpc


def run(words: Sequence[str], config: Path | None, env: Mapping[str, str]) -> int:
    """Run `kctl rpc` with the words after it; `config` is a `-c` that stood before it.

    Raises:
        KctlError, AgentError: with the exit code of each.
    """
    options = _parsed(words)
    fleet = fleets.find(options.config or config, env)
    poll = partial(_answer, fleet, options)
    if options.watch:
        from kctl.cli.fleet.watch import watch

        separator = {"table": "\n", "wide": "\n", "yaml": "---\n", "json": ""}[options.output]
        title = f"kctl rpc {options.command}  {clean(fleet.name)}  every {options.watch:g} s"
        return watch(lambda: _with_remark(*poll()), options.watch, title, separator)
    text, verdict, problem = poll()
    sys.stdout.write(f"{text}\n")
    if verdict is not None:
        sys.stdout.flush()
        sys.stderr.write(f"kctl: {verdict}\n")
    if problem is not None:
        raise problem
    return 0


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    options = parser().parse_args(words)
    command = options.command
    if command is None:
        raise UsageError(f"give a command: {', '.join(TABLES)}")
    if command not in TABLES:
        import difflib

        near = difflib.get_close_matches(command, TABLES, n=1)
        hint = f"the nearest is `{near[0]}`" if near else f"there are {', '.join(TABLES)}"
        raise UsageError(f"there is no rpc command `{clean(command)}`; {hint}")
    if options.fail_above is not None and command not in THRESHOLDS:
        raise UsageError(f"--fail-above is for {', '.join(THRESHOLDS)}, not for {command}")
    return options


def _answer(fleet: fleets.Fleet, options: argparse.Namespace) -> tuple[str, str | None, KctlError | None]:
    """The answer as text, what is wrong with the fleet, and with the answer. A value that is too high outweighs a
    worker that is silent."""
    params = {} if options.worker is None else {"worker": options.worker}
    reply = ask(fleet, options.command, reducer_method(options.command), params, options.timeout)
    problem: KctlError | None = incomplete(reply)
    is_read = options.output in ("table", "wide") or options.fail_above is not None
    result = TABLES[options.command].read(options.command, reply.raw) if is_read else None
    if options.fail_above is not None:
        try:
            check(options.command, result, options.fail_above)
        except IncompleteAnswer as error:
            problem = problem or error
        except KctlError as error:
            problem = error
    return _text(reply, result, options), remark(reply), problem


def _text(reply: Reply, result: Any, options: argparse.Namespace) -> str:
    if options.output == "json":
        return as_json(whole(reply), in_one_line=bool(options.watch))
    if options.output == "yaml":
        return as_yaml(whole(reply))
    table = TABLES[options.command]
    lines = ((options.output == "wide" and table.wide) or table.lines)(result)
    if reply.age_seconds is not None and reply.age_seconds > OLD_SECONDS:
        lines.append(f"age: {duration(reply.age_seconds)}")
    if reply.stopped:
        lines.append(f"stopped by request: {clean(', '.join(reply.stopped))}")
    return "\n".join(lines)


def _with_remark(text: str, verdict: str | None, problem: KctlError | None) -> tuple[str, str | None]:
    return text, "\n".join(f"kctl: {each}" for each in (verdict, problem) if each is not None) or None
