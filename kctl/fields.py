"""Formats bytes, times and names for all views, and converts times that users enter."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


def bytes_field(name: str, value: bytes | None) -> dict[str, str | None]:
    """Returns the JSON field `name` with bytes as text, or `<name>_base64` if the bytes are not UTF-8."""
    if value is None:
        return {name: None}
    try:
        return {name: value.decode("utf-8")}
    except UnicodeDecodeError:
        import base64  # `rpc` and `status` do not need it

        return {f"{name}_base64": base64.b64encode(value).decode()}


def shortened(texts: Sequence[str], most: int = 3, between: str = ", ") -> str:
    """Joins the first `most` texts and counts the rest: `a, b, c and 2 more`."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return between.join(texts[:most]) + more


def qualified(host: str, name: str) -> str:
    return f"{host}/{name}"


def host_and_name(process: str) -> tuple[str, str]:
    host, _, name = process.rpartition("/")
    return host, name


def moment(unix_seconds: float) -> str:
    """Formats a time in UTC: `2026-11-22T10:04:02Z`. `--to` and `--time` accept this form."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unix_seconds))


def unix_seconds(given: datetime) -> float:
    """Converts a time that a user entered. A time without a zone is in UTC, like all displayed times."""
    from datetime import UTC  # `rpc` and `status` do not need it

    return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
