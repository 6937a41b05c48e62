"""`kctl advise`: how many workers and sinkers a fleet needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kctl import fleets
from kctl.cli.command import CONFIG, OUTPUT, Command, Option
from kctl.cli.fleet.ask import ask
from kctl.cli.groups.api_client import CLUSTER, TOKEN_FILE, URL_OPTION, GroupsApi
from kctl.cli.output import as_text, echo
from kctl.cli.table import cell, clean
from kctl.fields import moment
from kctl.rpc.decode import answered

if TYPE_CHECKING:
    from kctl.rows.advice import Advice

_EXIT_CODES = {"keep": 0, "unknown": 3}


def _run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    from kctl.rows.advice import Advice

    if options.group is not None:
        document = GroupsApi(options.url, options.token_file).advice(options.cluster, options.group)
        raw = json.dumps(document).encode()
    else:
        reply = ask(fleets.find(options.config, env), "advice", {}, options.timeout, of_master=True)
        document, raw = reply.result, reply.raw
    advice = answered("advice", Advice, raw)
    text = "\n".join(_lines(advice)) if options.output == "table" else as_text(document, options.output)
    echo(text)
    return _EXIT_CODES.get(advice.answer.value, 1)


def _lines(advice: Advice) -> Iterator[str]:
    yield clean(advice.sentence)
    numbers = {
        "since": None if advice.since is None else moment(advice.since),
        "needed": advice.needed,
        "hosts": advice.hosts,
        "arrivals/s": None if advice.arrivals_per_second is None else f"{advice.arrivals_per_second:.0f}",
        "capacity/s": None if advice.capacity_per_second is None else f"{advice.capacity_per_second:.0f}",
    }
    yield "  ".join(f"{name} {cell(value)}" for name, value in numbers.items())
    yield from (f"hot: {clean(each.topic)}-{each.partition} needs {each.workers:.1f} workers" for each in advice.hot)
    if advice.outcome is not None:
        yield clean(advice.outcome.text)


COMMAND = Command(
    "advise",
    "Show how many workers and sinkers a fleet needs, and when more would not help.",
    (
        CONFIG,
        OUTPUT,
        Option(("--timeout",), "in total", "seconds", "SECONDS", 5.0),
        Option(
            ("--group", "-g"), "ask an exporter about this group of other clients, instead of a fleet", metavar="GROUP"
        ),
        *(each._replace(help=f"with --group: {each.help}") for each in (URL_OPTION, CLUSTER, TOKEN_FILE)),
    ),
    "kctl advise                    the answer and its reason\n"
    "kctl advise -o json            for a script or an autoscaler\n"
    "kctl advise --group billing    a group that `kctl exporter` on this host watches",
    """\
The first line is the answer: `keep`, `workers 4 -> 6`, `sinkers 2 -> 4`, `hot` (one partition needs more than a worker
can do), `handler` or `storage` (more processes would not help), or `unknown`. This command changes nothing; use `kctl
scale`.

Exit codes: 0 keep, 1 another answer, 3 unknown, 5 no master to ask.""",
    run=_run,
)
