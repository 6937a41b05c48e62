"""`forget_host`: makes all hosts forget a host that has left for good."""

from __future__ import annotations

import asyncio

from kctl.errors import OperationRefused
from kctl.master.operations.fleet_operation import Caller, Context, Done, FleetOperation, Report
from kctl_agent.rpc.messages import printable_name
from kctl_agent.rpc.params import param

_POLL_SECONDS = 0.1


class ForgetHost(FleetOperation, rpc="forget_host"):
    """Make all hosts of a fleet forget a host that will not return.

    Without this command, kctl reports a lost host as missing for `hosts.forget_seconds`. A forgotten host that returns
    counts as present again.

    kctl forget-host node-3
    """

    name: str = param("a host that `kctl hosts` shows as gone", is_argument=True)

    def touches(self, _context: Context) -> frozenset[str]:
        return frozenset()

    async def carry_out(self, context: Context, _caller: Caller, _report: Report) -> Done:
        from kctl.master.operations.context import goes_on

        if context.hosts is None:
            raise OperationRefused("this fleet runs on one host: hosts.url is not set")
        if not context.hosts.forget(self.name):
            raise OperationRefused(f"host {printable_name(self.name)} is not gone: see `kctl hosts`")
        with goes_on("the other hosts do not know it yet"):
            while self.name in context.hosts.gone:  # noqa: ASYNC110 - a thread changes it
                await asyncio.sleep(_POLL_SECONDS)
        return f"{self.name} is forgotten", {}
