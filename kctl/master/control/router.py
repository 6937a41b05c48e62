"""The router of `master.sock`: operations go to the operation log, questions to the service. No socket in here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kctl.master.operations.base import Caller
from kctl.master.operations.fleet_operation import described
from kctl.master.operations.operation_log import OperationLog
from kctl_agent.errors import BadParams
from kctl_agent.replies.describe import Method, Param
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.messages import Request, reducer_method, reply_ok, wire_method
from kctl_agent.rpc.wire import JsonObject

_NAME = "master"
_DEFAULT_DEADLINE_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 60.0
_OWN_SECONDS = 0.1
"""Seconds of the caller's deadline that are kept for sending the answer."""
_LOCAL = Param("local", "boolean", "Ask no other host.")
_ID = Param("id", "string", "The operation's id.", required=True)


def _served(method: str, rpc: str, summary: str, params: tuple[Param, ...], *, changes: bool = False) -> Method:
    return Method(method, rpc, summary, params, int(_DEFAULT_DEADLINE_SECONDS * 1000), changes)


_QUESTIONS = {
    each.method: each
    for each in (
        _served(wire_method("operation"), "operation", "How far an operation has come.", (_ID,)),
        _served(wire_method("operations"), "operations", "The last operations of all hosts.", (_LOCAL,)),
        _served(
            reducer_method("cancel"),
            "cancel",
            "End an operation that is under way; its end reports what goes on.",
            (_ID,),
            changes=True,
        ),
    )
}


class Router:
    """Routes requests. Belongs to one event loop."""

    def __init__(self, service: Callable[[Request], Awaitable[JsonObject]], operations: OperationLog) -> None:
        """`service` answers whatever is no operation."""
        self._service = service
        self._operations = operations
        self._types = {reducer_method(name): kind for name, kind in operations.types.items()}

    async def answer(self, request: Request, caller: Caller) -> JsonObject:
        """The reply to one request, before its deadline; an operation that takes longer is answered as it stands then.
        Raises UnknownMethod, BadParams, OperationRefused."""
        if request.method in self._types and self._types[request.method].rpc == request.rpc:
            deadline = (request.deadline_ms or _DEFAULT_DEADLINE_SECONDS * 1000) / 1000
            wait = max(min(deadline, _LONGEST_WAIT_SECONDS) - _OWN_SECONDS, 0.0)
            operation = await self._operations.submit(request.rpc, request.params, caller, wait)
            return reply_ok(request.id, operation.to_json(), _NAME, 0.0)
        if request.method in _QUESTIONS and _QUESTIONS[request.method].rpc == request.rpc:
            if request.rpc == "operations":
                return await self._all(request)
            return reply_ok(request.id, self._about(request, caller), _NAME, 0.0)
        reply = await self._service(request)
        if request.method == wire_method("describe") and not request.params:
            reply["result"]["methods"] = sorted(
                [*reply["result"]["methods"], *self._described()], key=lambda method: str(method["method"])
            )
        return reply

    async def _all(self, request: Request) -> JsonObject:
        is_local = request.params.get("local", False)
        if not isinstance(is_local, bool) or request.params.keys() - {"local"}:
            raise BadParams("operations takes one parameter, local, true or false")
        seconds = (request.deadline_ms or _DEFAULT_DEADLINE_SECONDS * 1000) / 1000 - _OWN_SECONDS
        rows, failed = await self._operations.listed(min(seconds, _DEFAULT_DEADLINE_SECONDS), is_local=is_local)
        lacks = {"complete": False, "failed": [each.to_json() for each in failed]} if failed else {}
        return reply_ok(request.id, {"rows": rows}, _NAME, 0.0, **lacks)

    def _about(self, request: Request, caller: Caller) -> JsonObject:
        id_ = request.params.get("id")
        if not isinstance(id_, str) or len(request.params) != 1:
            raise BadParams(f"{request.rpc} takes one parameter, id, a text")
        operation = self._operations.cancel(id_, caller) if request.rpc == "cancel" else self._operations.find(id_)
        return operation.to_json()

    def _described(self) -> list[JsonObject]:
        deadline = int(_DEFAULT_DEADLINE_SECONDS * 1000)
        operations = (
            {"method": method, **described(kind), "deadline_ms": deadline} for method, kind in self._types.items()
        )
        return [*map(encoded, _QUESTIONS.values()), *operations]
