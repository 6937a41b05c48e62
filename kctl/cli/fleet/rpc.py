"""`kctl rpc COMMAND`: asks a running fleet, once or repeatedly, and prints the answer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from kctl import fleets
from kctl.cli.command import CONFIG, WIDE_OUTPUT, Command, Option, nearest
from kctl.cli.fleet.ask import OF_HOSTS, OLD_SECONDS, ask, incomplete, of_hosts, remark
from kctl.cli.fleet.tables import VIEWS, check, lines_of, read
from kctl.cli.output import as_json, as_yaml, echo, whole
from kctl.cli.table import clean, duration
from kctl.errors import IncompleteAnswer, KctlError, UsageError
from kctl_agent.replies.questions import QUESTIONS

if TYPE_CHECKING:
    from kctl.rpc.client import Reply

_COMPARED = {name: each.compared for name, each in VIEWS.items() if each.compared}
_HIGHER = ", ".join(f"{what} ({name})" for name, what in _COMPARED.items())
_COMMANDS = tuple((name, each.title) for name, each in QUESTIONS.items())


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    _check(options)
    fleet = fleets.find(options.config, env)
    poll = partial(_answer, fleet, options)
    if options.watch:
        from kctl.cli.fleet.watch import watch

        separator = {"table": "\n", "wide": "\n", "yaml": "---\n", "json": ""}[options.output]
        title = f"kctl rpc {options.command}  {clean(fleet.name)}  every {options.watch:g} s"
        watch(lambda: _with_remark(*poll()), options.watch, title, separator)
        return
    text, verdict, problem = poll()
    echo(text)
    if verdict is not None:
        sys.stdout.flush()
        sys.stderr.write(f"kctl: {verdict}\n")
    if problem is not None:
        raise problem


def _check(options: argparse.Namespace) -> None:
    command = options.command
    if command is None:
        raise UsageError(f"give a command: {', '.join(QUESTIONS)}")
    if command not in QUESTIONS:
        raise UsageError(f"there is no rpc command `{clean(command)}`; {nearest(command, QUESTIONS)}")
    if options.fail_above is not None and command not in _COMPARED:
        raise UsageError(f"--fail-above is for {', '.join(_COMPARED)}, not for {command}")


def _answer(fleet: fleets.Fleet, options: argparse.Namespace) -> tuple[str, str | None, KctlError | None]:
    params = of_hosts(options) | ({} if options.worker is None else {"worker": options.worker})
    reply = ask(fleet, options.command, params, options.timeout)
    problem: KctlError | None = incomplete(reply)
    is_read = options.output in ("table", "wide") or options.fail_above is not None
    result = read(options.command, reply.raw) if is_read else None
    if options.fail_above is not None:
        try:
            check(options.command, result, options.fail_above)
        except IncompleteAnswer as error:
            problem = problem or error
        except KctlError as error:
            problem = error  # a value above the limit matters more than a missing answer
    return _text(reply, result, options), remark(reply), problem


def _text(reply: Reply, result: Any, options: argparse.Namespace) -> str:
    if options.output == "json":
        return as_json(whole(reply), in_one_line=bool(options.watch))
    if options.output == "yaml":
        return as_yaml(whole(reply))
    lines = lines_of(options.command, result, is_wide=options.output == "wide")
    if reply.age_seconds is not None and reply.age_seconds > OLD_SECONDS:
        lines.append(f"age: {duration(reply.age_seconds)}")
    if reply.stopped:
        lines.append(f"stopped by request: {clean(', '.join(reply.stopped))}")
    return "\n".join(lines)


def _with_remark(text: str, verdict: str | None, problem: KctlError | None) -> tuple[str, str | None]:
    return text, "\n".join(f"kctl: {each}" for each in (verdict, problem) if each is not None) or None


COMMAND = Command(
    "rpc",
    "Ask a running fleet.",
    (
        Option(("COMMAND",), "one of the names above", completed=_COMMANDS),
        CONFIG,
        WIDE_OUTPUT,
        Option(("--watch",), "repeat, by default every 2 seconds", "seconds", "[SECONDS]", bare=2.0),
        Option(("--timeout",), "in total", "seconds", "SECONDS", 5.0),
        Option(("--worker",), "ask only this process; on another host HOST/NAME", metavar="NAME"),
        *OF_HOSTS,
        Option(("--fail-above",), f"exit 4 if a value is higher: {_HIGHER}", "int", "N"),
    ),
    "kctl rpc kafka_lag                       the number of pending messages\n"
    "kctl rpc offset_checker --watch          per partition, every 2 seconds\n"
    "kctl rpc kafka_lag --fail-above 10000    exit 4 above this number, for cron and checks\n"
    "kctl rpc offset_checker -o json | jq '.rows[] | select(.worker == null)'\n"
    "kctl rpc workers --worker worker-0       one worker only\n"
    "kctl rpc workers -o wide                 every column, full errors",
    "\n".join(f"  {name:<18}{question}" for name, question in _COMMANDS),
    "Exit codes: 0 ok, 1 failed, 2 wrong usage, 3 a worker did not answer or a value is unknown, 4 above "
    "--fail-above, 5 no master to ask.",
    run=_run,
)
