"""How many members groups have, out of the bytes of responses. Pure.

kafka-python makes objects of all members with all that they hold, of which nothing is wanted here.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from kctl.kafka.flexible import behind, behind_tags, count_of, nullable_text_of, text_of

__all__ = ["DESCRIBE_VERSIONS", "CountedGroup", "counted"]

DESCRIBE_VERSIONS = range(5, 7)
"""Of DescribeGroups: in the flexible encoding."""
_WITH_MESSAGE = 6
_INT16 = Struct(">h")
_THROTTLE_BYTES = 4
_OPERATIONS_BYTES = 4
_FIELDS_OF_MEMBER = 6
"""Its id, instance id, client id, host, metadata and assignment, each with its length before it."""


class CountedGroup(NamedTuple):
    """A classic group; where there is an `error_code` nothing is known of its members."""

    group: str
    error_code: int
    error_message: str | None
    members: int


def counted(body: bytes, version: int) -> Iterator[CountedGroup]:
    """The groups of a response to DescribeGroups, of one of `DESCRIBE_VERSIONS`.

    Raises:
        one of `flexible.UNREADABLE`: it is none.
    """
    count, at = count_of(body, _THROTTLE_BYTES)
    for _ in range(count):
        [error_code] = _INT16.unpack_from(body, at)
        message, at = nullable_text_of(body, at + 2) if version >= _WITH_MESSAGE else (None, at + 2)
        group, at = text_of(body, at)
        for _ in ("state", "protocol type", "protocol"):
            at = behind(body, at)
        members, at = count_of(body, at)
        for _ in range(members):
            for _ in range(_FIELDS_OF_MEMBER):
                at = behind(body, at)
            at = behind_tags(body, at)
        at = behind_tags(body, at + _OPERATIONS_BYTES)
        yield CountedGroup(group, error_code, message, members)
