"""Operations that were running when a master was killed, by its audit log: one line at the start of each, one at the
end."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from kctl.master.operations.base import Operation
from kctl.regular_files import open_regular
from kctl_agent.rpc.wire import JsonObject

_BYTES = 256 * 1024
"""The end of the log, enough for the 500 known operations."""
_TEXT = "interrupted: the master was killed while this was under way"


def interrupted(path: Path, now: float) -> list[Operation]:
    """Returns operations without an end, as `unknown`; `now` in Unix seconds. Raises OSError."""
    begun: dict[tuple[str, float], JsonObject] = {}
    for line in _lines(path):
        if line.get("via") != "cli" and isinstance(line.get("id"), str) and isinstance(line.get("params"), dict):
            key = line["id"], line.get("started_at", now)
            if line.get("state") == "running":
                begun[key] = line
            else:
                begun.pop(key, None)
    return [
        Operation(
            id=id_,
            name=str(line.get("operation")),
            params=line["params"],
            by=str(line.get("by")),
            uid=line.get("uid"),
            via=str(line.get("via")),
            started_at=started_at,
            deadline_seconds=line.get("deadline_seconds", 0.0),
            touches=frozenset(),
            state="unknown",
            text=_TEXT,
            ended_at=now,
        )
        for (id_, started_at), line in begun.items()
        if id_.isdecimal()
    ]


def _lines(path: Path) -> Iterator[JsonObject]:
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    with open(descriptor, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - _BYTES, 0))
        for text in file.read().splitlines():
            try:
                line = json.loads(text)
            except ValueError:  # the first may be half a line
                continue
            if isinstance(line, dict):
                yield line
