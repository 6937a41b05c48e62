"""`kctl groups` and `kctl group`: print consumer groups."""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from kctl.cli.command import OUTPUT, Command, Option
from kctl.cli.groups.api_client import CLUSTER, TOKEN_FILE, URL_OPTION, GroupsApi, unanswered
from kctl.cli.output import as_text, echo
from kctl.cli.table import UNKNOWN, Column, cell, clean, clip, columns, duration, ranges, render

_MOST = 10_000
_COLUMNS = columns("group type state >members >lag >behind >growth/s status reason")
_WATCHED = ("cluster", "group", "lag", "behind", "growth/s", "status", "reason")
"""The columns with --watch. In a terminal of 80 characters, only the reason is cut."""
_NAME_COLUMNS, _CLUSTER_COLUMNS = 28, 12
_PARTITIONS = columns("topic >partition >committed >end >lag >behind >growth/s status reason")
_MEMBERS = columns("member client host instance >lag holds")
_SORTS = ("group", "lag", "lag_seconds", "growth", "status")
_TROUBLE = ("losing", "stopped", "stalled", "rewind", "warn", "unknown")


def _groups(options: argparse.Namespace, _env: Mapping[str, str]) -> int:
    api = GroupsApi(options.url, options.token_file)

    def view() -> tuple[str, str | None, str | None]:
        answer = api.groups(options.cluster, options.group or [], options.sort, options.limit)
        is_table, is_watched = options.output == "table", options.watch is not None
        text = "\n".join(_lines(answer, is_watched)) if is_table else as_text(answer, options.output)
        return text, _cut(answer), unanswered(answer)

    return _shown(view, "groups", options)


def _shown(view: Callable[[], tuple[str, str | None, str | None]], what: str, options: argparse.Namespace) -> int:
    """Prints what `view` returns: (text, remark, missing parts). Without `--watch`, returns 3 if parts are missing."""
    if options.watch is not None:
        from kctl.cli.fleet.watch import watch as again

        def remarked() -> tuple[str, str | None]:
            text, *remarks = view()
            return text, "; ".join(filter(None, remarks)) or None

        title = f"{what} at {options.url}  every {options.watch:g} s"
        again(remarked, options.watch, title, "\n" if options.output == "table" else "")
        return 0
    text, *remarks = view()
    echo(text)
    sys.stderr.writelines(f"{remark}\n" for remark in remarks if remark is not None)
    return 0 if remarks[-1] is None else 3


def _growth(per_second: float | None) -> str | None:
    return None if per_second is None else f"{per_second:+.1f}" if per_second else "0"


def _cut(answer: dict[str, Any]) -> str | None:
    # Omitted groups are not a failure, because the limit was requested.
    shown, total = len(answer["rows"]), answer["total"]
    if shown >= total:
        return None
    more = f"--limit takes up to {_MOST:,}" if shown < _MOST else "choose by name, as in `kctl groups 'payments-*'`"
    return f"{shown:,} of {total:,} groups; {more}"


def _lines(answer: dict[str, Any], is_watched: bool) -> list[str]:
    shown = (*(columns("cluster") if len(answer["clusters"]) > 1 else ()), *_COLUMNS)
    if not is_watched:
        return render(shown, [_cells(row, shown) for row in answer["rows"]])
    shown = tuple(column for column in shown if column.heading in _WATCHED)
    rows = [
        {
            **row,
            "cluster": clip(clean(row["cluster"]), _CLUSTER_COLUMNS),
            "group": clip(clean(row["group"]), _NAME_COLUMNS),
        }
        for row in answer["rows"]
    ]
    return [_summary(answer), *render(shown, [_cells(row, shown) for row in rows])]


def _cells(row: dict[str, Any], shown: Sequence[Column]) -> list[object]:
    known = row | {"behind": duration(row["lag_seconds"]), "growth/s": _growth(row["growth_per_second"])}
    return [known[column.heading] for column in shown]


def _summary(answer: dict[str, Any]) -> str:
    trouble = [f"{answer['statuses'][status]:,} {status}" for status in _TROUBLE if status in answer["statuses"]]
    lag = UNKNOWN if answer["lag"] is None else f"{answer['lag']:,}"
    return " · ".join([f"{answer['total']:,} group{'' if answer['total'] == 1 else 's'}", *trouble, f"lag {lag}"])


def _group(options: argparse.Namespace, _env: Mapping[str, str]) -> int:
    api = GroupsApi(options.url, options.token_file)

    def view() -> tuple[str, None, str | None]:
        answer, is_table = api.group(options.cluster, options.group), options.output == "table"
        text = "\n".join(_group_lines(answer)) if is_table else as_text(answer, options.output)
        return text, None, answer["members_error"] and f"its members are not known: {answer['members_error']}"

    return _shown(view, "group", options)


def _group_lines(answer: dict[str, Any]) -> Iterator[str]:
    head = {
        **{name: answer[name] for name in ("group", "cluster", "type", "state", "coordinator", "members", "lag")},
        "members": None if answer["members"] is None else len(answer["members"]),
        "behind": duration(answer["lag_seconds"]),
        "growth/s": _growth(answer["growth_per_second"]),
        "status": answer["status"],
        "age": duration(answer["age_seconds"]),
    }
    yield "  ".join(f"{key} {cell(value)}" for key, value in head.items())
    yield cell(answer["reason"])
    yield ""
    yield from render(_PARTITIONS, map(_partition, answer["rows"])) if answer["rows"] else ["nothing is committed"]
    yield ""
    if answer["members"]:
        yield from render(_MEMBERS, map(_member, answer["members"]))
    else:
        yield "no members" if answer["members"] == [] else "its members are not known"


def _partition(row: dict[str, Any]) -> tuple[object, ...]:
    return (
        *(row[name] for name in ("topic", "partition", "current_offset", "kafka_max_offset", "remaining_count")),
        duration(row["lag_seconds"]),
        _growth(row["growth_per_second"]),
        row["status"],
        row["reason"],
    )


def _member(member: dict[str, Any]) -> tuple[object, ...]:
    held = sorted((member["assigned"] or {}).items())
    holds = " ".join(f"{topic}:{ranges(numbers)}" for topic, numbers in held)
    return *(member[name] for name in ("member_id", "client_id", "host", "instance_id", "lag")), holds


_WATCH = Option(("--watch",), "repeat", "number", "SECONDS", least=0.1)
COMMAND = Command(
    "groups",
    "List every consumer group with its lag and status.",
    (
        Option(("GROUP",), "only these groups; globs such as `payments-*` are allowed", "words"),
        *(URL_OPTION, CLUSTER),
        Option(("--sort",), "largest or worst first", default="status", choices=_SORTS),
        Option(("--limit", "-n"), "the maximum number of rows", "int", "N", 1000, least=1),
        *(_WATCH, TOKEN_FILE, OUTPUT),
    ),
    "kctl groups 'payments-*' --sort growth --watch 5\n"
    "kctl groups --url https://monitor:9308 --token-file token -o json",
    "Lists the groups that a running `kctl exporter` collects; a status appears once a group has been observed for a "
    "while. Exits with 3, and the reason, if part of a cluster did not answer or is not known yet.",
    run=_groups,
)
GROUP = Command(
    "group",
    "Show one consumer group: its partitions and members.",
    (
        Option(("GROUP",), "its full name; `kctl groups` lists them", is_required=True),
        *(URL_OPTION, CLUSTER, _WATCH, TOKEN_FILE, OUTPUT),
    ),
    "kctl group billing\nkctl group billing --url https://monitor:9308 --token-file token --watch 5",
    "Shows what each current member owns, with its lag. Exits with 3, and the reason, if the coordinator does not "
    "answer or kctl does not know yet whether the group exists, and with 19 if it does not exist.",
    run=_group,
)
