"""`kctl storage dead`: lists, counts, shows, exports, requeues, deletes and sends dead letters."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from kctl.audit import fleet_log, operation
from kctl.cli.command import WIDE_OUTPUT, argument, option
from kctl.cli.confirm import confirm
from kctl.cli.options import ConfigOption, OutputOption, YesOption, load_fleet
from kctl.cli.output import as_json, as_text, echo
from kctl.cli.storage.tables import dead_letter_lines, dead_letter_table, group_table
from kctl.dead_letters.documents import dead_letter_document, group_document
from kctl.dead_letters.sending import sending
from kctl.dead_letters.storage import Verb, changed, opened_dead_letters
from kctl.errors import UsageError
from kctl.schemas import decoder
from kctl.terminal import line_of
from kctl_agent.rpc.messages import number_of
from kctl_agent.storage.selection import Selection

if TYPE_CHECKING:
    from kctl.config.sections import Config

R = TypeVar("R")

LimitOption = Annotated[int, option("--limit", "-n", least=1, metavar="N", help="The most rows.")]
ExpectOption = Annotated[
    int | None,
    option("--expect", least=0, metavar="COUNT", help="Do nothing unless exactly this many match."),
]
WideOption = Annotated[str, WIDE_OUTPUT._replace(help="The format; `wide` is a table with full errors.")]


def list_dead(
    selection: Selection,
    config: ConfigOption = None,
    output: WideOption = "table",
    limit: LimitOption = 50,
) -> None:
    """List dead letters, oldest first.

    kctl storage dead list --topic orders -o wide
    kctl storage dead list --line shop.py:7 --text customer-17
    """
    with opened_dead_letters(load_fleet(config)) as storage:
        found = list(storage.dead(selection, limit + 1))
    _print(found, dead_letter_table, dead_letter_document, limit, output)


def groups(
    selection: Selection,
    config: ConfigOption = None,
    output: WideOption = "table",
    limit: LimitOption = 50,
) -> None:
    """Count dead letters by error class and line of the handler, most frequent first.

    Counts all, and those of the last hour and day.

    kctl storage dead groups --topic orders
    kctl storage dead groups --died-from 2026-11-21T10:00:00Z -o json
    """
    with opened_dead_letters(load_fleet(config)) as storage:
        found = storage.dead_groups(selection, 24)
    _print(found, group_table, group_document, limit, output)


def _print(
    found: list[R],
    table: Callable[..., list[str]],
    document: Callable[[R], dict[str, Any]],
    limit: int,
    output: str,
) -> None:
    """Prints the first `limit` rows; returns whether there are more."""
    listed, has_more = found[:limit], len(found) > limit
    if output not in ("table", "wide"):
        echo(as_text({"rows": [document(each) for each in listed], "more": has_more}, output))
        return
    echo("\n".join(table(listed, is_wide=output == "wide")))
    if has_more:
        sys.stderr.write(f"more than {limit} match: --limit lists more\n")


def show_dead(
    id_: Annotated[str, argument("ID", help="The id printed by `kctl storage dead list`.")],
    config: ConfigOption = None,
    output: OutputOption = "table",
) -> None:
    """Show one dead letter: its message, error and traceback."""
    fleet = load_fleet(config)
    with opened_dead_letters(fleet) as storage:
        dead_letter = storage.find_dead(id_)
    if dead_letter is None:
        raise UsageError(f"there is no dead letter {id_}; `kctl storage dead list` lists them")
    if output == "table":
        echo("\n".join(dead_letter_lines(dead_letter, decoder(fleet))))
    else:
        echo(as_text(dead_letter_document(dead_letter, decoder=decoder(fleet)), output))


def export_dead(selection: Selection, config: ConfigOption = None) -> None:
    """Write dead letters to stdout as JSON lines.

    Bytes that are not UTF-8 are in fields with `_base64`.
    """
    fleet = load_fleet(config)
    decode = decoder(fleet)
    with opened_dead_letters(fleet) as storage:
        for dead_letter in storage.dead(selection):
            sys.stdout.write(as_json(dead_letter_document(dead_letter, decoder=decode), in_one_line=True) + "\n")


def requeue(selection: Selection, config: ConfigOption = None, expect: ExpectOption = None) -> None:
    """Requeue dead letters; those of a table pass through the transform again.

    Messages that become dead letters during the command are skipped. Ctrl-C stops it; what was done stays done.

    kctl storage dead requeue --error-class KeyError --line shop.py:7 --expect 1200
    """
    echo(_changed(load_fleet(config), "requeue", selection, expect))


def delete(
    selection: Selection,
    config: ConfigOption = None,
    expect: ExpectOption = None,
    yes: YesOption = False,
) -> None:
    """Delete dead letters.

    Asks first, and deletes exactly the number that you confirmed, or none. Ctrl-C stops it; what was done stays done.
    """
    fleet = load_fleet(config)
    if not yes:
        with opened_dead_letters(fleet) as storage:
            found, where = storage.count_dead(selection), storage.identity
        if found == 0 and not expect:
            echo("no dead letters")
            return
        expect = found if expect is None else expect
        confirm(f"Remove {number_of(expect, 'dead letter')} of {where} for good?")
    echo(_changed(fleet, "delete", selection, expect))


def send(
    to: Annotated[str, argument("TOPIC", help="A topic of the fleet's cluster; it must exist.")],
    selection: Selection,
    config: ConfigOption = None,
    expect: ExpectOption = None,
) -> None:
    """Send dead letters to a topic, and remove each that the brokers have acknowledged.

    Delivery is at least once: after an interruption, messages that were sent but not yet removed are sent again. The
    header kctl-dead-letter names the dead letter, the same each time, so that consumers can drop repeats.

    kctl storage dead send orders-parked --error-class KeyError --expect 1200
    """
    echo(_changed(load_fleet(config), "send", selection, expect, to=to))


def _changed(fleet: Config, verb: Verb, selection: Selection, expect: int | None, to: str = "") -> str:
    done, what = 0, {"requeue": "requeued", "delete": "removed", "send": f"sent to {to}"}[verb]

    def progress(now: int) -> None:
        nonlocal done
        done = now
        running.text = f"{number_of(now, 'dead letter')} {what}"
        show(running.text)

    params = selection.named | ({"to": to} if to else {})
    with (
        opened_dead_letters(fleet) as storage,
        operation(fleet_log(fleet), f"dead letters {verb}", params) as running,
        line_of(sys.stderr) as show,
    ):
        try:
            count = changed(storage, verb, selection, expect, progress, partial(sending, fleet, to))
            running.text = f"{number_of(count, 'dead letter')} {what}{storage.note}"
        except KeyboardInterrupt:
            stopped = f"stopped: {number_of(done, 'dead letter')} {what}"
            sys.stderr.write(f"\n{stopped}\n")
            raise KeyboardInterrupt("stopped") from None
    return running.text
