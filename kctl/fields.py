"""Values as fields of a document, the same in every view: bytes, times, and names; and times as they are given."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime


def bytes_field(name: str, value: bytes | None) -> dict[str, str | None]:
    """Bytes as one field of a document: as text where they are UTF-8, else as base64, the name ending in `_base64`."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        import base64  # `rpc` and `status` never need it

        return {f"{name}_base64": base64.b64encode(value).decode()}


def qualified(host: str, name: str) -> str:
    """Returns the name of a process among those of all hosts: `node-2/worker-0`."""
    return f"{host}/{name}"


def host_and_name(process: str) -> tuple[str, str]:
    """Returns the parts of such a name; without a host, the first is empty."""
    host, _, name = process.rpartition("/")
    return host, name


def moment(unix_seconds: float) -> str:
    """`2026-11-22T10:04:02Z`: the same on every host, and what `--to` and `--time` take."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_seconds))


def unix_seconds(given: datetime) -> float:
    """Of a time that a caller has given: without a zone it is in UTC, as all that are shown."""
    from datetime import UTC  # `rpc` and `status` never need it

    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
