"""Makes commands of operations: options from the parameters in `kctl.operations`, help from the docstrings there.

Operations that show a plan first, or a special result, have a function in `plans`.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import partial
from importlib import import_module
from typing import Any

from kctl.cli.command import CONFIG, OUTPUT, YES, Command, Option
from kctl.cli.fleet.submit import carry_out
from kctl.cli.signature import help_parts
from kctl.cli.table import clean
from kctl.errors import UsageError
from kctl.fleets import find
from kctl.master.operations.fleet_operation import FleetOperation, with_host
from kctl.operations import operation
from kctl_agent.errors import BadParams
from kctl_agent.rpc.params import check_bounds

_OWN = ("seek", "restart", "stack")
_SHORT = {"topic": ("-t",), "partition": ("-p",)}
"""The same short options as in `kctl kafka`."""
_KINDS = {"str": "text", "int": "int", "bool": "flag"}
_WAIT = Option(("--wait",), "wait for the outcome and show progress; otherwise print the id", "flag")


def command(name: str) -> Command:
    kind = operation(name)
    summary, details, examples = help_parts(kind)
    options = tuple(_options(kind))
    return Command(name.replace("_", "-"), summary, options, examples, details, run=partial(_run, name))


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
        getattr(import_module("kctl.cli.fleet.plans"), name)(find_fleet, params, options)
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
        yield _WAIT
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
    """The parameters typed as NAME=N, as one argument."""
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
