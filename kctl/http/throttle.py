"""How many wrong tokens an address may show; pure, time is given.

Every token is compared, however many wrong ones came before it: one of 16 characters and more is not guessed, and all
local users have one address, so that any of them could lock the others out. What the bound spares is the answers to
wrong tokens, and the log.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FailureThrottle", "source_of"]

_SOURCES = 4096


@dataclass(slots=True)
class _Source:
    left: float
    """Wrong tokens that may still be shown."""
    at: float


class FailureThrottle:
    """A token bucket for each address: `failures` at once, as many again within `seconds`. One event loop's."""

    def __init__(self, failures: int, seconds: float, clock: Callable[[], float]) -> None:
        self._failures = failures
        self._seconds = seconds
        self._clock = clock
        self._sources: OrderedDict[str, _Source] = OrderedDict()

    def failed(self, source: str) -> float | None:
        """Count a wrong token. None if it was within the bound; else it was one too many: the seconds until one more is
        within it."""
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
