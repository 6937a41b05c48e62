"""Giving an order to the master of a fleet, following it, and saying in one line what has happened."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Annotated, Any

import typer

from kctl.cli.fleet.ask import ask
from kctl.cli.options import Output, config_option
from kctl.cli.output import as_json, as_yaml
from kctl.cli.table import clean
from kctl.errors import OrderFailed
from kctl.fleets import Fleet, find
from kctl_agent.messages import reducer_method, wire_method

__all__ = ["DeadlineOption", "WaitOption", "asked", "carry_out", "fleet_of", "follow", "give", "show"]

_ANSWER_SECONDS = 60.0
_LOOK_SECONDS = 0.2

WaitOption = Annotated[
    bool, typer.Option("--wait", help="Wait until it is carried out, and show how it goes; without, its id is printed.")
]
DeadlineOption = Annotated[
    float | None,
    typer.Option("--deadline", min=0.1, metavar="SECONDS", show_default=False, help="Give up after so long."),
]


def fleet_of(context: typer.Context, config: Path | None) -> Fleet:
    return find(config_option(context, config), os.environ)


def carry_out(
    fleet: Fleet, verb: str, params: Mapping[str, Any], output: Output, *, deadline: float | None, wait: bool = True
) -> None:
    """Give an order, wait for its end if asked to, print what has happened.

    Raises:
        CommandRejected: it was refused, nothing was changed.
        OrderFailed: it was begun and could not be carried out.
    """
    order = give(fleet, verb, params, deadline)
    show(follow(fleet, order) if wait else order, output)


def give(fleet: Fleet, verb: str, params: Mapping[str, Any], deadline: float | None = None) -> dict[str, Any]:
    """The order as it stands when it has ended, or is known to take long."""
    given = {key: value for key, value in params.items() if value is not None}
    if deadline is not None:
        given["deadline_seconds"] = deadline
    return ask(fleet, verb, reducer_method(verb), given, _ANSWER_SECONDS).result


def asked(fleet: Fleet, id_: str) -> dict[str, Any]:
    return ask(fleet, "order", wire_method("order"), {"id": id_}, _ANSWER_SECONDS).result


def follow(fleet: Fleet, order: dict[str, Any]) -> dict[str, Any]:
    """The order when it has ended; each thing it says meanwhile goes to stderr."""
    told, pause = "", Event()
    while order["state"] == "running":
        if order["text"] and order["text"] != told:
            told = order["text"]
            sys.stderr.write(f"{clean(told)}\n")
        pause.wait(_LOOK_SECONDS)
        order = asked(fleet, order["id"])
    return order


def show(order: dict[str, Any], output: Output) -> None:
    """Raises OrderFailed after it has printed one that failed as JSON or YAML; a table has only the sentence."""
    if output is Output.JSON:
        typer.echo(as_json(order))
    elif output is Output.YAML:
        typer.echo(as_yaml(order))
    elif order["state"] == "running":
        text = f": {clean(order['text'])}" if order["text"] else ""
        typer.echo(f"order {order['id']} is under way{text}; `kctl order {order['id']}` shows how it goes")
    elif order["state"] == "done":
        typer.echo(clean(order["text"]))
    if order["state"] == "failed":
        raise OrderFailed(f"order {order['id']}, {order['verb']}: {clean(order['text'])}")
