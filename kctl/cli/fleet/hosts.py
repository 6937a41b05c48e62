"""`kctl hosts`: lists the hosts."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kctl import fleets
from kctl.cli.command import CONFIG, OUTPUT, Command, Option
from kctl.cli.fleet.ask import ask
from kctl.cli.output import as_text, echo, whole
from kctl.cli.table import columns, duration, render
from kctl.errors import IncompleteAnswer
from kctl.fields import moment
from kctl.rpc.decode import answered

if TYPE_CHECKING:
    from kctl.rows.hosts import HostRow, HostsAnswer

_COLUMNS = columns("name state since url version protocols reason")


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    from kctl.rows.hosts import HostsAnswer

    reply = ask(fleets.find(options.config, env), "hosts", {}, options.timeout, of_master=True)
    answer = answered("hosts", HostsAnswer, reply.raw)
    text = "\n".join(_lines(answer)) if options.output == "table" else as_text(whole(reply), options.output)
    echo(text)
    if missing := [f"{row.name} ({row.state})" for row in answer.rows if row.is_missing]:
        raise IncompleteAnswer(f"hosts are missing: {', '.join(missing)}")
    if answer.error is not None:
        raise IncompleteAnswer(answer.error)


def _lines(answer: HostsAnswer) -> list[str]:
    age = "never" if answer.age_seconds is None else f"{duration(answer.age_seconds)} ago"
    return [
        *render(_COLUMNS, [_cells(row) for row in answer.rows]),
        f"as of {age}, from {answer.leader or 'no leader'}; protocol {answer.protocol}",
    ]


def _cells(row: HostRow) -> tuple[object, ...]:
    protocols = None if row.protocols is None else "-".join(map(str, dict.fromkeys(row.protocols)))
    since = None if row.since is None else moment(row.since)
    return row.name, row.state, since, row.url, row.version, protocols, row.reason


COMMAND = Command(
    "hosts",
    "Show the hosts of a fleet, and which are missing.",
    (CONFIG, OUTPUT, Option(("--timeout",), "in total", "seconds", "SECONDS", 5.0)),
    "kctl hosts                   all hosts\nkctl status --host node-2    the state of one host",
    """\
`here` is the host that answers this command. A `silent` host is in the masters' group but does not answer. A `gone`
host has left the group without a graceful stop. The fleet does not accept a `refused` host, for the reason shown.

Exit codes: 0 all hosts are present, 3 a host is missing or the hosts are unknown, 5 no master to ask.""",
    run=_run,
)
