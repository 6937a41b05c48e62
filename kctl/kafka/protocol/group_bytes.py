"""Counts the members of groups in the bytes of DescribeGroups responses. Decodes no members. Pure."""

from itertools import pairwise
from struct import Struct
from typing import NamedTuple

from kctl.kafka.protocol.raw import behind, behind_tags, count_of, nullable_text_of, text_of

DESCRIBE_VERSIONS = range(5, 7)  # versions with the flexible encoding
_WITH_MESSAGE = 6
_INT16 = Struct(">h")
_THROTTLE_BYTES = 4
_OPERATIONS_BYTES = 4
_FIELDS_OF_MEMBER = 6  # id, instance id, client id, host, metadata, assignment, each with its length


class CountedGroup(NamedTuple):
    group: str
    error_code: int
    error_message: str | None
    members: int


_NONE = CountedGroup("", 0, None, 0), (0, 0)


class CountedResponses:
    """Decodes one coordinator's responses, poll by poll. Parses groups again only if their bytes have changed."""

    def __init__(self) -> None:
        self._body = b""
        self._groups: list[CountedGroup] = []
        self._bounds: list[int] = [0]  # where each group starts, and where the last one ends

    def read(self, body: bytes, version: int) -> list[CountedGroup]:
        """Decodes a response. `version` must be the same in all calls. Raises one of `UNREADABLE`."""
        old, known = self._body, zip(self._groups, pairwise(self._bounds), strict=True)
        count, at = count_of(body, _THROTTLE_BYTES)
        groups, bounds = [], [at]
        for _ in range(count):
            group, (begin, end) = next(known, _NONE)
            if begin < end and body[at : at + end - begin] == old[begin:end]:
                at += end - begin
            else:
                group, at = _counted(body, at, version)
            groups.append(group)
            bounds.append(at)
        self._body, self._groups, self._bounds = body, groups, bounds
        return groups


def _counted(body: bytes, at: int, version: int) -> tuple[CountedGroup, int]:
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
    return CountedGroup(group, error_code, message, members), behind_tags(body, at + _OPERATIONS_BYTES)
