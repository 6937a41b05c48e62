"""Converts decoded values to JSON for display. Standard library only."""

from math import isfinite
from typing import Any

from kctl_agent.errors import Undecodable

MOST_LEVELS = 200
"""The most levels of a schema, and of a value for people. Python stops at about 1000 levels, including its callers'."""


def plain(value: Any, levels: int = MOST_LEVELS) -> Any:
    """Converts a value to JSON types. Bytes become Latin-1 text, as in Avro's own JSON. Values without a JSON type,
    such as dates and NaN, become text. Raises Undecodable for a lone surrogate, or for too many levels."""
    if not levels:
        raise Undecodable(f"BadRecord: more than {MOST_LEVELS} levels cannot be shown")
    if isinstance(value, dict):
        return {plain(str(key)): plain(each, levels - 1) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, levels - 1) for each in value]
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise Undecodable(f"BadRecord: a text cannot be shown: {error}") from error
    is_json = value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value))
    return value if is_json else str(value)
