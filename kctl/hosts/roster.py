"""The roster of a fleet: which hosts are present, gone or rejected. Pure.

Each master describes itself when it joins the group of masters. The leader makes the roster from all descriptions and
the previous roster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv6Address
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, Struct

T = TypeVar("T")
URL = r"\Ahttps?://([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[1-9][0-9]{0,4})?\Z"
_Protocol = Annotated[int, Meta(ge=0, lt=2**15)]
_Text = Annotated[str, Meta(max_length=1000)]
_GONE_MOST = 100
"""The roster is one message of the coordinator, and crash-looping pods may have a new name each time."""
_MISSED_MOST = 10  # keeps a stranger from filling the roster with invented hosts
PROTOCOLS = (1, 1)  # oldest and newest protocol between hosts in this release


class Host(Struct, frozen=True):
    """A master's description of itself. It does not change within a generation of the group."""

    name: Annotated[str, Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
    url: Annotated[str, Meta(pattern=URL)]
    incarnation: Annotated[int, Meta(ge=0, lt=2**62)]  # start time in Unix nanoseconds
    version: Annotated[str, Meta(max_length=40)] = ""
    protocols: tuple[_Protocol, _Protocol] = PROTOCOLS
    is_leaving: bool = False
    forgotten: tuple[Annotated[str, Meta(max_length=100)], ...] = ()
    """Keys of gone hosts that an operator has made the fleet forget."""
    missed: Annotated[tuple[Gone, ...], Meta(max_length=_MISSED_MOST)] = ()
    """Hosts of an earlier roster that are missing from a later one."""

    def __post_init__(self) -> None:
        if "[" in self.url:
            IPv6Address(self.url[self.url.index("[") + 1 : self.url.index("]")])
        if int(self.url.rpartition(":")[2] if self.url[-1].isdigit() and self.url.count(":") > 1 else 0) > 65535:
            raise ValueError("there is no such port")

    @property
    def key(self) -> str:
        return f"{self.name}@{self.incarnation}"

    def speaks(self, protocol: int) -> bool:
        return self.protocols[0] <= protocol <= self.protocols[1]


class Gone(Struct, frozen=True):
    """A host that left the group without notice. `since` is in Unix seconds."""

    host: Host
    since: Annotated[float, Meta(ge=0, le=2**40)]


class Refused(Struct, frozen=True):
    name: _Text
    url: _Text
    reason: _Text


class Roster(Struct, frozen=True):
    """The hosts of a fleet in one generation of their group. Each tuple is sorted by name."""

    leader: Annotated[str, Meta(max_length=64)] = ""
    protocol: int = PROTOCOLS[1]  # the newest protocol that all hosts support
    hosts: tuple[Host, ...] = ()
    gone: tuple[Gone, ...] = ()
    refused: tuple[Refused, ...] = ()


_DECODERS: Final[Mapping[type, msgspec.json.Decoder[Any]]] = {
    each: msgspec.json.Decoder(each) for each in (Host, Roster)
}
"""Made at import, in one thread: see `kctl.rpc.decode._MAKING`."""


def decoded(kind: type[T], sent: bytes) -> T | None:
    """Decodes a Host or a Roster. Returns None for invalid bytes: any client may join the group and send them."""
    try:
        found: T = _DECODERS[kind].decode(sent)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def agreed(
    leader: str, descriptions: Iterable[Host | None], before: Roster, now: float, forget_seconds: float
) -> Roster:
    """Returns the new roster, which keeps a gone host for `forget_seconds`. `descriptions` has None for each member
    that is not a master. `now` is in Unix seconds."""
    described = list(descriptions)
    hosts, refused = _accepted([each for each in described if each is not None], before)
    if strangers := described.count(None):
        refused.append(Refused("-", "-", f"{strangers} of the group's members are not masters"))
    known = [*_missing(before, now), *(each for host in hosts for each in host.missed)]
    newest = {each.host.name: each for each in sorted(known, key=lambda each: (each.host.incarnation, -each.since))}
    here, forgotten = {each.name for each in hosts}, {key for each in hosts for key in each.forgotten}
    gone = [
        each
        for each in newest.values()
        if each.host.name not in here and each.host.key not in forgotten and now - min(each.since, now) < forget_seconds
    ]
    gone = sorted(gone, key=lambda each: each.since)[-_GONE_MOST:]
    if hosts and leader not in here:  # the group's leader is itself rejected
        leader = hosts[0].name
    return Roster(
        leader,
        min((each.protocols[1] for each in hosts), default=PROTOCOLS[1]),
        tuple(hosts),
        tuple(sorted(gone, key=lambda each: each.host.name)),
        tuple(sorted(refused, key=lambda each: (each.name, each.url))),
    )


def lost(before: Roster, after: Roster, now: float) -> tuple[Gone, ...]:
    named = {each.name for each in after.hosts} | {each.host.name for each in after.gone}
    forgotten = {key for each in after.hosts for key in each.forgotten}
    unnamed = [each for each in _missing(before, now) if each.host.name not in named]
    missed = [each for each in unnamed if each.host.key not in forgotten]
    return tuple(missed[:_MISSED_MOST]) if len(after.gone) < _GONE_MOST else ()


def _missing(before: Roster, now: float) -> list[Gone]:
    plain = [msgspec.structs.replace(each, forgotten=(), missed=()) for each in before.hosts if not each.is_leaving]
    return [*before.gone, *(Gone(each, now) for each in plain)]


def _accepted(described: Iterable[Host], before: Roster) -> tuple[list[Host], list[Refused]]:
    accepted: list[Host] = []
    refused = []
    known = {each.key for each in before.hosts}
    # If two hosts share a name or URL, accepts the one in `before`, otherwise the older one. A restarted host never
    # conflicts with its former process, because the rebalance ends only after the session of that process.
    for each in sorted(
        {each.key: each for each in described}.values(), key=lambda each: (each.key not in known, each.incarnation)
    ):
        other = next((host for host in accepted if host.name == each.name or host.url == each.url), None)
        if other is None:
            accepted.append(each)
            continue
        what = f"the name {each.name}" if other.name == each.name else f"the address {each.url}"
        reason = f"{what} belongs to {other.name} at {other.url}, which started before: change hosts.name or hosts.url"
        refused.append(Refused(each.name, each.url, reason))
    speakers = {
        oldest: [each for each in accepted if each.speaks(oldest)]
        for oldest, _ in {each.protocols for each in accepted}
    }
    # The protocol that most hosts speak; in a tie, the older one.
    spoken = max(speakers, key=lambda each: (len(speakers[each]), -each), default=PROTOCOLS[1])
    for each in [host for host in accepted if not host.speaks(spoken)]:
        accepted.remove(each)
        oldest, newest = each.protocols
        refused.append(Refused(each.name, each.url, f"it speaks protocols {oldest} to {newest}, most hosts {spoken}"))
    return sorted(accepted, key=lambda each: each.name), refused
