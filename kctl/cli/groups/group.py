"""`kctl group`"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from kctl.cli.command import argument, option
from kctl.cli.groups.api_client import URL, ClusterOption, GroupsApi, TokenOption, UrlOption
from kctl.cli.groups.groups import growth, shown
from kctl.cli.options import OutputOption
from kctl.cli.output import as_text
from kctl.cli.signature import command
from kctl.cli.table import cell, columns, duration, ranges, render

_PARTITIONS = columns("topic >partition >committed >end >lag >behind >growth/s status reason")
_MEMBERS = columns("member client host instance >lag holds")


def _group(
    name: Annotated[str, argument("GROUP", help="Its full name; `kctl groups` lists them.")],
    url: UrlOption = URL,
    cluster: ClusterOption = None,
    watch: Annotated[float | None, option("--watch", metavar="SECONDS", least=0.1, help="Repeat.")] = None,
    token_file: TokenOption = None,
    output: OutputOption = "table",
) -> int:
    """Show one consumer group: its partitions and members.

    Shows what each current member owns, with its lag. Exit code 3, with the reason, if the coordinator does not answer
    or it is not known yet whether the group exists; 19 if it does not exist.

    kctl group billing
    kctl group billing --url https://monitor:9308 --token-file token --watch 5
    """
    api = GroupsApi(url, token_file)

    def view() -> tuple[str, None, str | None]:
        answer = api.group(cluster, name)
        text = "\n".join(_lines(answer)) if output == "table" else as_text(answer, output)
        return text, None, answer["members_error"] and f"its members are not known: {answer['members_error']}"

    return shown(view, f"group at {url}", watch, output)


def _lines(answer: dict[str, Any]) -> Iterator[str]:
    head = {
        **{name: answer[name] for name in ("group", "cluster", "type", "state", "coordinator", "members", "lag")},
        "members": None if answer["members"] is None else len(answer["members"]),
        "behind": duration(answer["lag_seconds"]),
        "growth/s": growth(answer["growth_per_second"]),
        "status": answer["status"],
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
        growth(row["growth_per_second"]),
        row["status"],
        row["reason"],
    )


def _member(member: dict[str, Any]) -> tuple[object, ...]:
    held = sorted((member["assigned"] or {}).items())
    holds = " ".join(f"{topic}:{ranges(numbers)}" for topic, numbers in held)
    return *(member[name] for name in ("member_id", "client_id", "host", "instance_id", "lag")), holds


COMMAND = command("group", _group)
