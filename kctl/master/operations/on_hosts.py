"""Passes an operation to the master of another host, or to the masters of all hosts, one after another.

Only the leading master executes operations for all hosts, so that no two operations conflict. If it loses the lead, it
stops before the next host.
"""

import asyncio
import math
import time
from dataclasses import dataclass

from kctl.errors import KctlError, NoSuchOperation, OperationFailed, OperationRefused, OperationUnknown
from kctl.hosts.hosts import Hosts
from kctl.master.operations.base import Caller, Report
from kctl.master.operations.context import Context
from kctl.master.operations.fleet_operation import ALL_HOSTS, Done, FleetOperation
from kctl_agent.errors import AgentError, AgentTimeout, AgentUnreachable, BadParams, NotPermitted
from kctl_agent.rpc.wire import JsonObject

_POLL_SECONDS = 0.2
_SILENT_SECONDS = 10.0
_CANCEL_SECONDS = 5.0


def check_host(hosts: Hosts | None, host: str, kind: type[FleetOperation]) -> None:
    if hosts is None:
        raise BadParams(f"{kind.rpc}: parameter host: this fleet runs on one host, hosts.url is not set")
    if host != ALL_HOSTS:
        hosts.check_known(host)
    elif not kind.for_all_hosts:
        raise BadParams(f"{kind.rpc} is for one host at a time: name it")


@dataclass(frozen=True, slots=True)
class OnHosts:
    """Runs an operation on another host or on all. Belongs to the master's event loop."""

    caller: Caller
    given: FleetOperation
    context: Context
    report: Report

    @property
    def hosts(self) -> Hosts:
        assert self.context.hosts is not None
        return self.context.hosts

    async def carry_out(self, host: str, params: JsonObject) -> Done:
        """Executes the operation on one host or on all. If cancelled, cancels the operation where it runs. Raises
        OperationUnknown if it may still run, OperationRefused if it cannot begin, and OperationFailed if it fails."""
        if host != ALL_HOSTS:
            return await self._on_one(host, params)
        leader = self.hosts.leader
        if leader is None:
            why = self.hosts.doubt or "the leading host is unknown: the coordinator of the masters' group is slow"
            raise OperationRefused(f"{self.given.rpc} for all hosts: {why}")
        if leader != self.hosts.me.name:
            return await self._on_one(leader, {**params, "host": ALL_HOSTS})
        return await self._on_all(params)

    async def _on_all(self, params: JsonObject) -> Done:
        missing = [row.name for row in self.hosts.answer().rows if row.state in ("gone", "refused")]
        if missing:
            raise OperationRefused(f"hosts are missing: {', '.join(missing)}; name the hosts that should do it")
        done: dict[str, JsonObject] = {}
        texts: list[str] = []
        for host, share in (await self.given.shared(self.context, params, self._on_one)).items():
            so_far = f"done on {', '.join(done) or 'none'}; {host}"
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise OperationFailed(f"{so_far} and the following were left out")
            if self.hosts.leader != self.hosts.me.name:
                raise OperationFailed(f"{so_far} and the following were left out: this host no longer leads the others")
            try:
                text, done[host] = await self._on_one(host, share)
            except asyncio.CancelledError as error:
                raise OperationFailed(f"{so_far} was cancelled, and the following were left out") from error
            except (KctlError, AgentError) as error:
                kind = OperationUnknown if isinstance(error, OperationUnknown) else OperationFailed
                raise kind(f"{so_far} has not done it: {error}") from error
            texts.append(text)
        return "; ".join(texts), self.given.joined(done)

    async def _on_one(self, host: str, params: JsonObject) -> Done:
        if host == self.hosts.me.name:
            text, result = await type(self.given).given(params).carry_out(self.context, self.caller, self.report)
            return f"{host}: {text}", result
        operation = await self._submitted(host, params)
        try:
            operation = await self._followed(host, operation)
        except asyncio.CancelledError:
            operation = await self._cancelled(host, operation)
        text = f"{host}: {operation['text']}"
        if operation["state"] == "failed":
            raise OperationFailed(text)
        if operation["state"] != "done":
            raise OperationUnknown(text)
        return text, operation["result"]

    async def _submitted(self, host: str, params: JsonObject) -> JsonObject:
        until = self.report.until
        limit = {} if until == math.inf else {"deadline_seconds": max(until - time.monotonic(), 0.1)}
        caller = f"{self.caller.name} on {self.hosts.me.name}".encode("ascii", "replace").decode()[-200:]
        given = {"operation": self.given.rpc, "caller": caller, "wait_seconds": 0}
        given["params"] = {"host": host, **params, **limit}
        try:
            operation = await self.hosts.submit(host, given)
        except (AgentUnreachable, NotPermitted) as error:
            raise OperationRefused(f"{host}: {error}") from error
        except AgentError as error:
            raise OperationUnknown(f"{host}: {error}; the operation may have begun") from error
        except asyncio.CancelledError as error:
            raise OperationUnknown(f"{host} has not answered; the operation may have begun") from error
        if "state" not in operation:
            raise OperationRefused(f"{host}: {operation.get('error', {}).get('message', 'it gave no reason')}")
        return operation

    async def _followed(self, host: str, operation: JsonObject) -> JsonObject:
        answered_at = time.monotonic()
        while operation["state"] == "running":
            self.report(f"{host}: {operation['text']}")
            await asyncio.sleep(_POLL_SECONDS)
            try:
                operation = await self._later(host, operation)
                answered_at = time.monotonic()
            except AgentError as error:
                if time.monotonic() - answered_at > _SILENT_SECONDS:
                    raise OperationUnknown(f"{host} runs the operation but does not answer: {error}") from error
        return operation

    async def _later(self, host: str, operation: JsonObject) -> JsonObject:
        found = await self.hosts.operation(host, operation["id"])
        error = {} if "state" in found else found.get("error", {})
        if error.get("code", NoSuchOperation.code) != NoSuchOperation.code:
            raise AgentTimeout(error.get("message", "it gave no reason"))
        # After a restart of the host's master, another operation may have this id.
        if "state" not in found or found["started_at"] != operation["started_at"]:
            raise OperationUnknown(f"{host} restarted during the operation")
        return found

    async def _cancelled(self, host: str, operation: JsonObject) -> JsonObject:
        deadline = time.monotonic() + _CANCEL_SECONDS
        try:
            operation = await self._later(host, operation)
            await self.hosts.operation(host, operation["id"], cancel=True)
            while operation["state"] == "running" and time.monotonic() < deadline:
                await asyncio.sleep(_POLL_SECONDS)
                operation = await self._later(host, operation)
        except AgentError as error:
            raise OperationUnknown(f"{host} could not be reached to cancel the operation: {error}") from error
        if operation["state"] == "running":
            raise OperationUnknown(f"{host} has begun the operation: {operation['text']}")
        return operation
