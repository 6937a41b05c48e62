"""`kctl groups`"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from enum import StrEnum
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any

import typer

from kctl.cli.options import Output, OutputOption
from kctl.cli.output import as_text
from kctl.cli.table import Column, render
from kctl.cli.times import duration
from kctl.errors import ConfigError, NoMaster, UsageError

__all__ = ["register"]

_URL = "http://127.0.0.1:9750"
_TIMEOUT_SECONDS = 20.0
_COLUMNS = (
    Column("group"),
    Column("type"),
    Column("state"),
    Column("members", is_number=True),
    Column("lag", is_number=True),
    Column("behind", is_number=True),
    Column("growth/s", is_number=True),
    Column("status"),
    Column("reason"),
)


class Sort(StrEnum):
    """As `/api/v1/groups` has it."""

    GROUP = "group"
    LAG = "lag"
    LAG_SECONDS = "lag_seconds"
    GROWTH = "growth"
    STATUS = "status"


def register(app: typer.Typer) -> None:
    app.command("groups")(_groups)


def _groups(
    url: Annotated[str, typer.Option("--url", help="A `kctl exporter`, or a master with exporter.all_groups.")] = _URL,
    cluster: Annotated[str | None, typer.Option("--cluster", help="Only this cluster's.", show_default=False)] = None,
    sort: Annotated[Sort, typer.Option("--sort", help="The largest or worst first.")] = Sort.STATUS,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="The most rows.")] = 1000,
    watch: Annotated[float | None, typer.Option("--watch", metavar="SECONDS", min=0.1, help="Again and again.")] = None,
    token_file: Annotated[
        Path | None, typer.Option("--token-file", help="A file with the bearer token.", show_default=False)
    ] = None,
    output: OutputOption = Output.TABLE,
) -> int:
    """List every consumer group with its lag and status.

    They are those that a running `kctl exporter` collects; a status needs to have seen a group for a while. Exit code 3
    when a part of a cluster was not answered, with the reason.

    \b
    kctl groups --sort growth --watch 5
    kctl groups --url https://monitor:9308 --token-file token -o json
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url takes http://HOST:PORT or https://HOST:PORT, not `{url}`")
    query = {"sort": sort.value, "limit": limit, **({} if cluster is None else {"cluster": cluster})}
    where = f"{url.rstrip('/')}/api/v1/groups?{urllib.parse.urlencode(query)}"

    def view() -> tuple[str, str | None]:
        answer = _asked(where, token_file)
        text = "\n".join(_table(answer)) if output is Output.TABLE else as_text(answer, output.value)
        return text, _remark(answer)

    if watch is not None:
        from kctl.cli.fleet.watch import watch as again

        return again(view, watch, f"groups at {url}", "\n" if output is Output.TABLE else "")
    text, remark = view()
    typer.echo(text)
    if remark is not None:
        sys.stderr.write(f"{remark}\n")
    return 0 if remark is None else 3


def _asked(where: str, token_file: Path | None) -> dict[str, Any]:
    headers = {"accept": "application/json"}
    if token_file is not None:
        try:
            headers["authorization"] = f"Bearer {token_file.read_text(encoding='utf-8').strip()}"
        except OSError as error:
            raise ConfigError(f"--token-file {token_file} cannot be read: {error.strerror}") from None
    try:
        request = urllib.request.Request(where, headers=headers)  # noqa: S310 - checked above
        with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:  # noqa: S310
            found: dict[str, Any] = json.load(response)
            return found
    except urllib.error.HTTPError as error:
        with error:
            raise NoMaster(f"{where} answered {error.code}: {_reason(error)}") from None
    except (OSError, HTTPException, ValueError) as error:
        why = getattr(error, "reason", error)
        raise NoMaster(f"nothing answers at {where}: {why}; start `kctl exporter`, or name it with --url") from None


def _reason(error: urllib.error.HTTPError) -> str:
    if error.code == 404:
        return "it does not collect all groups: set exporter.all_groups, or ask a `kctl exporter`"
    try:
        return str(json.load(error)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return error.reason


def _table(answer: dict[str, Any]) -> list[str]:
    """With a column for the cluster where there are several."""
    has_clusters = len(answer["clusters"]) > 1
    columns = (Column("cluster"), *_COLUMNS) if has_clusters else _COLUMNS
    return render(columns, [[*([row["cluster"]] if has_clusters else []), *_cells(row)] for row in answer["rows"]])


def _cells(row: dict[str, Any]) -> list[object]:
    growth = row["growth_per_second"]
    return [
        *(row[name] for name in ("group", "type", "state", "members", "lag")),
        duration(row["lag_seconds"]),
        None if growth is None else f"{growth:+.1f}" if growth else "0",
        row["status"],
        row["reason"],
    ]


def _remark(answer: dict[str, Any]) -> str | None:
    """What was not answered."""
    failed = [
        f"cluster {cluster['cluster']}: {part}: {why}"
        for cluster in answer["clusters"]
        for part, why in cluster["errors"].items()
    ]
    return "; ".join(dict.fromkeys(failed)) or None
