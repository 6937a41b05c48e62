"""Counts requests to `master.sock` by command: outcomes and durations."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from typing import Literal, TypeAlias, TypeVar

from kctl.master.snapshot import RPC_BUCKETS_SECONDS, RpcStats
from kctl_agent.errors import UnknownMethod
from kctl_agent.rpc.messages import Request

T = TypeVar("T")

Outcome: TypeAlias = Literal["ok", "incomplete", "failed"]
_NONE = RpcStats({"ok": 0, "incomplete": 0, "failed": 0}, (0,) * (len(RPC_BUCKETS_SECONDS) + 1), 0.0)


class RpcCounts:
    """Counts requests by command. Belongs to one event loop."""

    def __init__(self) -> None:
        self._stats: dict[str, RpcStats] = {}

    def count(self, command: str, outcome: Outcome, seconds: float) -> None:
        """Pass a known command, or the same word for all others, because each `command` becomes a lasting series."""
        known, bucket = self._stats.get(command, _NONE), bisect_left(RPC_BUCKETS_SECONDS, seconds)
        self._stats[command] = RpcStats(
            {**known.outcomes, outcome: known.outcomes[outcome] + 1},
            tuple(count + (number == bucket) for number, count in enumerate(known.buckets)),
            known.seconds + seconds,
        )

    def stats(self) -> Mapping[str, RpcStats]:
        return dict(sorted(self._stats.items()))


def counted(
    answer: Callable[[Request], Awaitable[T]], counts: RpcCounts, is_complete: Callable[[T], bool]
) -> Callable[[Request], Awaitable[T]]:
    """Counts unknown commands as `unknown`."""

    async def counting(request: Request) -> T:
        started, command = time.monotonic(), request.rpc
        outcome: Outcome = "failed"
        try:
            reply = await answer(request)
            outcome = "ok" if is_complete(reply) else "incomplete"
            return reply
        except UnknownMethod:
            command = "unknown"
            raise
        finally:
            counts.count(command, outcome, time.monotonic() - started)

    return counting
