"""`kctl groups`"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

from kctl.cli.command import argument, option
from kctl.cli.groups.api_client import URL, ClusterOption, GroupsApi, TokenOption, UrlOption, unanswered
from kctl.cli.options import OutputOption
from kctl.cli.output import as_text, echo
from kctl.cli.signature import command
from kctl.cli.table import columns, render
from kctl.cli.times import duration

__all__ = ["COMMAND", "Sort", "growth"]

_MOST = 10_000
"""The most rows, as many as are answered at once."""
_COLUMNS = columns("group type state >members >lag >behind >growth/s status reason")


class Sort(StrEnum):
    """Orders of groups, as `/api/v1/groups` has them."""

    GROUP = "group"
    LAG = "lag"
    LAG_SECONDS = "lag_seconds"
    GROWTH = "growth"
    STATUS = "status"


def _groups(
    patterns: Annotated[
        list[str] | None,
        argument("GROUP", help="Only these; a glob such as `payments-*` too."),
    ] = None,
    url: UrlOption = URL,
    cluster: ClusterOption = None,
    sort: Annotated[Sort, option("--sort", help="The largest or worst first.")] = Sort.STATUS,
    limit: Annotated[int, option("--limit", "-n", least=1, metavar="N", help="The most rows.")] = 1000,
    watch: Annotated[float | None, option("--watch", metavar="SECONDS", least=0.1, help="Again and again.")] = None,
    token_file: TokenOption = None,
    output: OutputOption = "table",
) -> int:
    """List every consumer group with its lag and status.

    They are those that a running `kctl exporter` collects; a status needs to have seen a group for a while. Exit code 3
    when a part of a cluster was not answered, or is not known yet, with the reason.

    kctl groups 'payments-*' --sort growth --watch 5
    kctl groups --url https://monitor:9308 --token-file token -o json
    """
    api, wanted = GroupsApi(url, token_file), patterns or []

    def view() -> tuple[dict[str, Any], str]:
        answer = api.groups(cluster, wanted, sort.value, limit)
        return answer, "\n".join(_table(answer)) if output == "table" else as_text(answer, output)

    if watch is not None:
        from kctl.cli.fleet.watch import watch as again

        def remarked() -> tuple[str, str | None]:
            answer, text = view()
            return text, "; ".join(each for each in (_cut(answer), unanswered(answer)) if each) or None

        return again(remarked, watch, f"groups at {url}  every {watch:g} s", "\n" if output == "table" else "")
    answer, text = view()
    echo(text)
    missing = unanswered(answer)
    for remark in (_cut(answer), missing):
        if remark is not None:
            sys.stderr.write(f"{remark}\n")
    return 0 if missing is None else 3


def growth(per_second: float | None) -> str | None:
    """Formats growth: `+1.5`, `-3.0`, `0`."""
    return None if per_second is None else f"{per_second:+.1f}" if per_second else "0"


def _cut(answer: dict[str, Any]) -> str | None:
    """Returns a sentence that these are not all groups; it is no failure, for the limit was asked for."""
    shown, total = len(answer["rows"]), answer["total"]
    if shown >= total:
        return None
    more = f"--limit takes up to {_MOST:,}" if shown < _MOST else "choose by name, as in `kctl groups 'payments-*'`"
    return f"{shown:,} of {total:,} groups; {more}"


def _table(answer: dict[str, Any]) -> list[str]:
    """Returns the table, with a column for the cluster where there are several."""
    has_clusters = len(answer["clusters"]) > 1
    shown = (*columns("cluster"), *_COLUMNS) if has_clusters else _COLUMNS
    return render(shown, [[*([row["cluster"]] if has_clusters else []), *_cells(row)] for row in answer["rows"]])


def _cells(row: dict[str, Any]) -> list[object]:
    return [
        *(row[name] for name in ("group", "type", "state", "members", "lag")),
        duration(row["lag_seconds"]),
        growth(row["growth_per_second"]),
        row["status"],
        row["reason"],
    ]


COMMAND = command("groups", _groups)
