"""Makes commands from operations. Parameters become options, and docstrings in `kctl.operations` become help."""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from typing import Any

from kctl.cli.command import CONFIG, OUTPUT, YES, Command, Option
from kctl.cli.fleet.operations import carry_out, follow, show, submit
from kctl.cli.output import confirm, echo
from kctl.cli.table import clean, columns, render
from kctl.errors import OperationFailed, UsageError
from kctl.fleets import Fleet, find
from kctl.kafka.target import position
from kctl.master.operations.fleet_operation import FleetOperation, with_host
from kctl.operations import operation
from kctl_agent.errors import BadParams
from kctl_agent.paths import ENGINE_NAME
from kctl_agent.rpc.params import check_bounds

_SHORT = {"topic": ("-t",), "partition": ("-p",)}  # the same short options as in `kctl kafka`
_KINDS = {"str": "text", "int": "int", "bool": "flag"}
_COLUMNS = columns("topic >partition >from >to >skipped >again")
"""The columns of a seek; `again` is how many offsets will be handled a second time."""


def command(name: str) -> Command:
    kind = operation(name)
    summary, *details = (inspect.getdoc(kind) or "").split("\n\n")
    examples = details.pop() if details and details[-1].startswith("kctl ") else ""
    options, text = tuple(_options(kind)), "\n\n".join(details)
    return Command(name.replace("_", "-"), summary, options, examples, text, run=partial(_run, name))


def _run(name: str, options: argparse.Namespace, env: Mapping[str, str]) -> None:
    kind = operation(name)
    host = {} if options.host is None else {"host": options.host}
    try:
        params = with_host({**_params(kind, options), **host})
        host = {"host": params.pop("host")} if "host" in params else {}
        check_bounds(kind.rpc, kind, params)
    except BadParams as error:
        raise UsageError(str(error)) from None
    if (problem := kind(**params).problem("--")) is not None:
        raise UsageError(problem)
    params |= host
    find_fleet = partial(find, options.config, env)
    if name in _OWN:
        _OWN[name](find_fleet, params, options)
    else:
        is_followed = not kind.is_long or options.wait
        carry_out(find_fleet(), name, params, options.output, deadline=options.deadline, wait=is_followed)


def _options(kind: type[FleetOperation]) -> Iterator[Option]:
    yield from (_option(each) for each in fields(kind) if not each.metadata.get("is_pair"))
    if (pairs := _pairs(kind)) is not None:
        yield pairs
    if any(each.name == "dry_run" for each in fields(kind)):
        yield YES
    if kind.is_long:
        yield Option(("--wait",), "wait for the outcome and show progress; otherwise print the id", "flag")
    at = "this host of the fleet, or on `all` in turn" if kind.for_all_hosts else "this host of the fleet"
    yield Option(("--host",), f"run it on {at}", metavar="NAME")
    yield Option(("--deadline",), f"give up after this time; default: {kind.limit_seconds:g}", "seconds", "SECONDS")
    yield from (CONFIG, OUTPUT)


def _option(each: Field[Any]) -> Option:
    facts, is_required = each.metadata, each.default is MISSING
    kind = "words" if "separator" in facts else _KINDS[str(each.type).split()[0]]
    if kind == "words" or facts.get("is_argument"):
        return Option((each.name.upper(),), facts["summary"], kind, is_required=is_required)
    default = False if kind == "flag" else None
    names = (*_SHORT.get(each.name, ()), f"--{each.name.replace('_', '-')}")
    return Option(names, facts["summary"], kind, facts.get("metavar"), default, is_required=is_required)


def _pairs(kind: type[FleetOperation]) -> Option | None:
    pairs = [each for each in fields(kind) if each.metadata.get("is_pair")]
    typed = "|".join(f"{each.name}=N" for each in pairs)
    return Option((typed,), pairs[0].metadata["summary"], "words", is_required=True) if pairs else None


def _params(kind: type[FleetOperation], options: argparse.Namespace) -> dict[str, Any]:
    given = {each.name: getattr(options, each.name, None) for each in fields(kind)}
    for each in fields(kind):
        if "separator" in each.metadata:
            given[each.name] = each.metadata["separator"].join(given[each.name] or ()) or None
    if (pairs := _pairs(kind)) is not None:
        given |= _counts(pairs.names[0].split("|"), getattr(options, pairs.key))
    return {name: value for name, value in given.items() if value is not None and value is not False}


def _counts(known: Sequence[str], words: Sequence[str]) -> dict[str, int]:
    counts = {}
    for word in words:
        name, _, number = word.partition("=")
        if f"{name}=N" not in known or not number.isdecimal():
            raise UsageError(f"`{clean(word)}` is neither {' nor '.join(known)}")
        counts[name] = int(number)
    return counts


def _restart(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    fleet = find_fleet()
    if options.dry_run or options.all or ENGINE_NAME in (options.name or ()):
        planned = {key: value for key, value in params.items() if key != "rolling"}
        plan = follow(fleet, submit(fleet, "restart", {**planned, "dry_run": True}))
        if options.dry_run or plan["state"] != "done":
            show(plan, options.output)
            return
        if any(each["engine"] for each in plan["result"].get("hosts", {"": plan["result"]}).values()):
            sys.stderr.write(f"{clean(plan['text'])}\n")
            if not options.yes and sys.stdin.isatty():
                confirm("Do it?")
    carry_out(fleet, "restart", params, options.output, deadline=options.deadline, wait=options.wait)


def _seek(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    if "=" not in options.to:
        position(options.to)
    fleet = find_fleet()
    if not options.dry_run and not options.yes:
        plan = submit(fleet, "seek", {**params, "dry_run": True}, options.deadline)
        params = {name: value for name, value in params.items() if name != "partition"} | {"to": _confirmed(plan)}
    done = follow(fleet, submit(fleet, "seek", params, options.deadline))
    if options.output == "table" and done["state"] == "done":
        echo("\n".join(_table(done)))
    else:
        show(done, options.output)


def _confirmed(plan: dict[str, Any]) -> str:
    if plan["state"] != "done":
        raise OperationFailed(f"operation {plan['id']}, seek: {clean(plan['text'])}")
    echo("\n".join(_table(plan)), is_error=True)
    confirm("Do it?")
    return ",".join(f"{row['partition']}={row['to']}" for row in plan["result"]["rows"])


def _table(seek: dict[str, Any]) -> list[str]:
    return render(_COLUMNS, [[row[each.heading] for each in _COLUMNS] for row in seek["result"]["rows"]])


def _stack(find_fleet: Callable[[], Fleet], params: dict[str, Any], options: argparse.Namespace) -> None:
    fleet = find_fleet()
    done = follow(fleet, submit(fleet, "stack", params, options.deadline))
    show(done, options.output)
    if options.output == "table":
        for thread in done["result"].get("threads", ()):
            echo(f"\n{thread['thread']}\n{thread['stack'].rstrip()}")
        for jvm in done["result"].get("jvms", ()):
            echo(f"\nJVM, pid {jvm['pid']}\n{jvm.get('stack') or jvm.get('error')}")


_OWN = {"seek": _seek, "restart": _restart, "stack": _stack}
