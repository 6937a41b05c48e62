"""Routes requests of `master.sock`: operations to the operation log, others to the service."""

import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Mapping
from operator import itemgetter
from typing import Literal, TypeAlias, TypeVar

from kctl.master.control.service import DEFAULT_DEADLINE_SECONDS, METHODS, methods
from kctl.master.operations.base import Caller
from kctl.master.operations.fleet_operation import described
from kctl.master.operations.operation_log import OperationLog
from kctl.master.snapshot import RPC_BUCKETS_SECONDS, RpcStats
from kctl_agent.errors import UnknownMethod
from kctl_agent.paths import MASTER_NAME
from kctl_agent.replies.describe import Param
from kctl_agent.replies.encode import encoded
from kctl_agent.rpc.messages import Request, reducer_method, reply_ok, wire_method
from kctl_agent.rpc.params import check_params
from kctl_agent.rpc.wire import JsonObject

T = TypeVar("T")

Outcome: TypeAlias = Literal["ok", "incomplete", "failed"]
_NONE = RpcStats({"ok": 0, "incomplete": 0, "failed": 0}, (0,) * (len(RPC_BUCKETS_SECONDS) + 1), 0.0)


class RpcCounts:
    """Counts requests by command. Belongs to one event loop."""

    def __init__(self) -> None:
        self._stats: dict[str, RpcStats] = {}

    def count(self, command: str, outcome: Outcome, seconds: float) -> None:
        """Counts a request. Pass one name for all unknown commands, because each name adds a Prometheus series."""
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
    """Returns an `answer` that also counts each request in `counts`. All unknown commands count as `unknown`."""

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


_LONGEST_WAIT_SECONDS = 60.0
_OWN_SECONDS = 0.1
_ID = Param("id", "string", "The operation's id.", required=True)

_QUESTIONS = methods(
    wire_method,
    ("operation", "How far an operation has come.", (_ID,)),
    ("operations", "The last operations of all hosts.", (Param("local", "boolean", "Ask no other host."),)),
) | methods(
    reducer_method,
    ("cancel", "End an operation that is under way; its end reports what goes on.", (_ID,)),
    changes=True,
)


class Router:
    """Passes requests to the operation log or the service. Belongs to one event loop."""

    def __init__(self, service: Callable[[Request], Awaitable[JsonObject]], operations: OperationLog) -> None:
        self._service = service
        self._operations = operations
        self._types = {reducer_method(name): kind for name, kind in operations.types.items()}
        deadline = {"deadline_ms": int(DEFAULT_DEADLINE_SECONDS * 1000)}
        described_types = ({"method": method, **described(kind), **deadline} for method, kind in self._types.items())
        self._methods = [*map(encoded, (METHODS | _QUESTIONS).values()), *described_types]
        self._methods.sort(key=itemgetter("method"))

    async def answer(self, request: Request, caller: Caller) -> JsonObject:
        """Returns the reply before the request's deadline. If an operation takes longer, returns its current state.
        Raises UnknownMethod, BadParams, OperationRefused."""
        if request.method in self._types and self._types[request.method].rpc == request.rpc:
            deadline = (request.deadline_ms or DEFAULT_DEADLINE_SECONDS * 1000) / 1000
            wait = max(min(deadline, _LONGEST_WAIT_SECONDS) - _OWN_SECONDS, 0.0)
            operation = await self._operations.submit(request.rpc, request.params, caller, wait)
            return reply_ok(request.id, operation.to_json(), MASTER_NAME, 0.0)
        question = _QUESTIONS.get(request.method)
        if question is not None and question.rpc == request.rpc:
            check_params(request.rpc, question.params, request.params)
            if request.rpc == "operations":
                return await self._all(request)
            return reply_ok(request.id, self._about(request, caller), MASTER_NAME, 0.0)
        if (request.rpc, request.method) == ("describe", wire_method("describe")) and not request.params:
            return reply_ok(request.id, {"methods": self._methods}, MASTER_NAME, 0.0)
        return await self._service(request)

    async def _all(self, request: Request) -> JsonObject:
        seconds = (request.deadline_ms or DEFAULT_DEADLINE_SECONDS * 1000) / 1000 - _OWN_SECONDS
        is_local = request.params.get("local", False)
        rows, failed = await self._operations.listed(min(seconds, DEFAULT_DEADLINE_SECONDS), is_local=is_local)
        lacks = {"complete": False, "failed": [each.to_json() for each in failed]} if failed else {}
        return reply_ok(request.id, {"rows": rows}, MASTER_NAME, 0.0, **lacks)

    def _about(self, request: Request, caller: Caller) -> JsonObject:
        id_ = request.params["id"]
        operation = self._operations.cancel(id_, caller) if request.rpc == "cancel" else self._operations.find(id_)
        return operation.to_json()
