"""How many wrong tokens an address may show; pure, time is given.

A token that is compared at all can be guessed, so an address that has shown too many wrong ones is refused without a
comparison. Addresses are counted one by one, or a stranger could lock everybody out; and a token that was accepted from
an address within the last hour is still compared there, or a stranger behind the same proxy could.
"""

from __future__ import annotations

import ipaddress
import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kctl.http.tokens import Token

__all__ = ["Throttle", "source_of"]

_SOURCES = 4096
_ACCEPTED_SECONDS = 3600.0


@dataclass(slots=True)
class _Source:
    left: float
    """Wrong tokens that may still be compared."""
    at: float
    accepted: dict[Token, float] = field(default_factory=dict)
    """When each token was last accepted from here."""


class Throttle:
    """A token bucket for each address: `failures` at once, as many again within `seconds`. One event loop's."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._failures = failures
        self._seconds = seconds
        self._clock = clock
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def comparable(self, source: str, tokens: Sequence[Token]) -> Sequence[Token]:
        """Those of the valid tokens that what `source` shows may be compared with now."""
        here = self._sources.get(source)
        if here is None or self._refilled(here).left >= 1.0:
            return tokens
        since = self._clock() - _ACCEPTED_SECONDS
        return [token for token in tokens if here.accepted.get(token, -math.inf) >= since]

    def accepted(self, source: str, token: Token) -> None:
        here, now = self._here(source), self._clock()
        here.accepted = {each: at for each, at in here.accepted.items() if now - at <= _ACCEPTED_SECONDS} | {token: now}

    def failed(self, source: str) -> float | None:
        """Count a wrong token. None if it was compared; else it was one too many, and the seconds until the next one
        is compared."""
        here = self._here(source)
        if here.left >= 1.0:
            here.left -= 1.0
            return None
        return (1.0 - here.left) * self._seconds / self._failures

    def _here(self, source: str) -> _Source:
        here = self._sources.get(source)
        if here is None:
            here = self._sources[source] = _Source(float(self._failures), self._clock())
            if len(self._sources) > _SOURCES:
                self._sources.popitem(last=False)
        self._sources.move_to_end(source)
        return self._refilled(here)

    def _refilled(self, here: _Source) -> _Source:
        now = self._clock()
        here.left = min(here.left + (now - here.at) * self._failures / self._seconds, float(self._failures))
        here.at = now
        return here


def source_of(host: str | None) -> str:
    """What is counted as one caller: an IPv4 address, or the /64 of an IPv6 address, which one host has to itself."""
    try:
        address = ipaddress.ip_address((host or "").partition("%")[0])
    except ValueError:
        return ""
    if isinstance(address, ipaddress.IPv6Address):
        mapped = address.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.IPv6Network((address, 64), strict=False))
    return str(address)
