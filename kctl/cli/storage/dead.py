"""`kctl storage dead`: lists, counts, shows, exports, requeues, deletes and sends dead letters."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from dataclasses import Field, fields
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from kctl.audit import fleet_log, operation
from kctl.cli.command import CONFIG, OUTPUT, WIDE_OUTPUT, YES, Command, CommandGroup, Option
from kctl.cli.options import load_fleet
from kctl.cli.output import as_json, as_text, confirm, echo
from kctl.cli.storage.tables import dead_letter_lines, dead_letter_table, group_table
from kctl.dead_letters.documents import dead_letter_document, group_document
from kctl.dead_letters.sending import sending
from kctl.dead_letters.storage import Verb, changed, opened_dead_letters
from kctl.errors import UsageError
from kctl.fields import unix_seconds
from kctl.schemas import decoder
from kctl.terminal import line_of
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.selection import OF_BLOCKS, Selection

if TYPE_CHECKING:
    from kctl.config.sections import Config

_FLAGS = MappingProxyType({"older_than_seconds": "--older-than", "ids": "--id"})
_KINDS = MappingProxyType({"int | None": "int", "float | None": "number", "tuple[str, ...] | None": "texts"})


def _option(declared: Field[Any]) -> Option:
    kind = "text" if _is_time(declared) else _KINDS.get(str(declared.type), "text")
    return Option(
        (_FLAGS.get(declared.name, f"--{declared.name.replace('_', '-')}"),),
        declared.metadata["help"],
        kind,
        declared.metadata["metavar"],
        least=0 if kind in ("int", "number") else None,
        parameter=declared.name,
    )


def selection(options: argparse.Namespace) -> Selection:
    return Selection(**{each.name: _value(each, getattr(options, each.name, None)) for each in fields(Selection)})


def _value(declared: Field[Any], given: Any) -> Any:
    if given is None or not _is_time(declared):
        return tuple(given) if isinstance(given, list) else given
    try:
        return unix_seconds(datetime.fromisoformat(given))
    except ValueError:
        raise UsageError(f"{given!r} is not a time: give one such as 2026-11-21T10:00:00Z") from None


def _is_time(declared: Field[Any]) -> bool:
    return bool(declared.metadata["metavar"] == "TIME")


SELECTION = tuple(map(_option, fields(Selection)))
OF_PENDING = tuple(each for each in SELECTION if each.parameter in OF_BLOCKS)
"""The options that messages have that are not dead letters."""
R = TypeVar("R")


def _list(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with opened_dead_letters(load_fleet(options, env)) as storage:
        found = list(storage.dead(selection(options), options.limit + 1))
    _print(found, dead_letter_table, dead_letter_document, options)


def _groups(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    with opened_dead_letters(load_fleet(options, env)) as storage:
        found = storage.dead_groups(selection(options), 24)
    _print(found, group_table, group_document, options)


def _print(
    found: list[R],
    table: Callable[..., list[str]],
    document: Callable[[R], dict[str, Any]],
    options: argparse.Namespace,
) -> None:
    listed, has_more = found[: options.limit], len(found) > options.limit
    if options.output not in ("table", "wide"):
        echo(as_text({"rows": [document(each) for each in listed], "more": has_more}, options.output))
        return
    echo("\n".join(table(listed, is_wide=options.output == "wide")))
    if has_more:
        sys.stderr.write(f"more than {options.limit} match: --limit lists more\n")


def _show(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    fleet = load_fleet(options, env)
    with opened_dead_letters(fleet) as storage:
        dead_letter = storage.find_dead(options.id)
    if dead_letter is None:
        raise UsageError(f"there is no dead letter {options.id}; `kctl storage dead list` lists them")
    if options.output == "table":
        echo("\n".join(dead_letter_lines(dead_letter, decoder(fleet))))
    else:
        echo(as_text(dead_letter_document(dead_letter, decoder=decoder(fleet)), options.output))


def _export(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    fleet = load_fleet(options, env)
    decode = decoder(fleet)
    with opened_dead_letters(fleet) as storage:
        for dead_letter in storage.dead(selection(options)):
            sys.stdout.write(as_json(dead_letter_document(dead_letter, decoder=decode), in_one_line=True) + "\n")


def _delete(options: argparse.Namespace, env: Mapping[str, str]) -> None:
    fleet, chosen, expect = load_fleet(options, env), selection(options), options.expect
    if not options.yes:
        with opened_dead_letters(fleet) as storage:
            found, where = storage.count_dead(chosen), storage.identity
        if found == 0 and not expect:
            echo("no dead letters")
            return
        expect = found if expect is None else expect
        confirm(f"Remove {number_of(expect, 'dead letter')} of {where} for good?")
    _change(fleet, "delete", chosen, expect)


def _change(fleet: Config, verb: Verb, chosen: Selection, expect: int | None, to: str = "") -> None:
    done, what = 0, {"requeue": "requeued", "delete": "removed", "send": f"sent to {to}"}[verb]

    def progress(now: int) -> None:
        nonlocal done
        done = now
        running.text = f"{number_of(now, 'dead letter')} {what}"
        show(running.text)

    params = chosen.named | ({"to": to} if to else {})
    with (
        opened_dead_letters(fleet) as storage,
        operation(fleet_log(fleet), f"dead letters {verb}", params) as running,
        line_of(sys.stderr) as show,
    ):
        try:
            count = changed(storage, verb, chosen, expect, progress, partial(sending, fleet, to))
            running.text = f"{number_of(count, 'dead letter')} {what}{storage.note}"
        except KeyboardInterrupt:
            stopped = f"stopped: {number_of(done, 'dead letter')} {what}"
            sys.stderr.write(f"\n{stopped}\n")
            raise KeyboardInterrupt("stopped") from None
    echo(running.text)


_WIDE_OUTPUT = WIDE_OUTPUT._replace(help="the format; `wide` is a table with full errors")
_LIMIT = Option(("--limit", "-n"), "the maximum number of rows", "int", "N", 50, least=1)
_EXPECT = Option(("--expect",), "do nothing unless exactly this many match", "int", "COUNT")
COMMAND = CommandGroup(
    "dead",
    "Messages that failed too often.",
    (
        Command(
            "list",
            "List dead letters, oldest first.",
            (CONFIG, _WIDE_OUTPUT, _LIMIT, *SELECTION),
            "kctl storage dead list --topic orders -o wide\nkctl storage dead list --line shop.py:7 --text customer-17",
            run=_list,
        ),
        Command(
            "groups",
            "Count dead letters by error class and line of the handler, most frequent first.",
            (CONFIG, _WIDE_OUTPUT, _LIMIT, *SELECTION),
            "kctl storage dead groups --topic orders\n"
            "kctl storage dead groups --died-from 2026-11-21T10:00:00Z -o json",
            "Counts all dead letters, and those of the last hour and the last day.",
            run=_groups,
        ),
        Command(
            "show",
            "Show one dead letter: its message, error and traceback.",
            (Option(("ID",), "the id printed by `kctl storage dead list`", is_required=True), CONFIG, OUTPUT),
            run=_show,
        ),
        Command(
            "export",
            "Write dead letters to stdout as JSON lines.",
            (CONFIG, *SELECTION),
            details="Bytes that are not UTF-8 are in base64, in a field whose name ends in `_base64`.",
            run=_export,
        ),
        Command(
            "requeue",
            "Requeue dead letters; those of a table pass through the transform again.",
            (CONFIG, _EXPECT, *SELECTION),
            "kctl storage dead requeue --error-class KeyError --line shop.py:7 --expect 1200",
            "Skips messages that become dead letters meanwhile. Ctrl-C stops the command, but does not undo what it "
            "has done.",
            run=lambda options, env: _change(load_fleet(options, env), "requeue", selection(options), options.expect),
        ),
        Command(
            "delete",
            "Delete dead letters.",
            (CONFIG, _EXPECT, YES, *SELECTION),
            details="Asks first, and deletes exactly the number that you confirmed, or none. Ctrl-C stops the "
            "command, but does not undo what it has done.",
            run=_delete,
        ),
        Command(
            "send",
            "Send dead letters to a topic, and remove each that the brokers have acknowledged.",
            (
                Option(("TOPIC",), "a topic of the fleet's cluster; it must exist", is_required=True, parameter="to"),
                *(CONFIG, _EXPECT, *SELECTION),
            ),
            "kctl storage dead send orders-parked --error-class KeyError --expect 1200",
            "Delivery is at least once: if the command is interrupted, the next run sends messages again that were "
            "sent but not removed. The header kctl-dead-letter names the dead letter and stays the same, so that "
            "consumers can drop duplicates.",
            run=lambda options, env: _change(
                load_fleet(options, env), "send", selection(options), options.expect, to=options.to
            ),
        ),
    ),
)
