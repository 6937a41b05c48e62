"""Where `master.sock` is answered: orders go to the ledger, questions to the service. No socket in here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kctl.master.orders import Caller, Orders, Verb
from kctl_agent.errors import BadParams
from kctl_agent.messages import Request, reducer_method, reply_ok, wire_method
from kctl_agent.wire import JsonObject

__all__ = ["Desk"]

_NAME = "master"
_DEFAULT_DEADLINE_SECONDS = 2.0
_LONGEST_WAIT_SECONDS = 60.0
_OWN_SECONDS = 0.1
"""Of the caller's deadline the part that is kept for sending the answer."""
_QUESTIONS = {
    wire_method("order"): ("order", "How far an order has come."),
    wire_method("orders"): ("orders", "The last orders, the youngest first."),
    reducer_method("cancel"): ("cancel", "End an order that is under way; what it has done stays done."),
}


class Desk:
    """Belongs to one event loop."""

    def __init__(self, service: Callable[[Request], Awaitable[JsonObject]], orders: Orders) -> None:
        """`service` answers whatever is no order."""
        self._service = service
        self._orders = orders
        self._verbs = {reducer_method(name): verb for name, verb in orders.verbs.items()}

    async def answer(self, request: Request, caller: Caller) -> JsonObject:
        """The reply to one request, before its deadline; an order that takes longer is answered as it stands then.

        Raises:
            UnknownMethod, BadParams, OrderRefused.
        """
        if request.method in self._verbs and self._verbs[request.method].name == request.rpc:
            deadline = (request.deadline_ms or _DEFAULT_DEADLINE_SECONDS * 1000) / 1000
            wait = max(min(deadline, _LONGEST_WAIT_SECONDS) - _OWN_SECONDS, 0.0)
            order = await self._orders.give(request.rpc, request.params, caller, wait)
            return reply_ok(request.id, order.to_json(), _NAME, 0.0)
        if request.method in _QUESTIONS and _QUESTIONS[request.method][0] == request.rpc:
            return reply_ok(request.id, self._told(request, caller), _NAME, 0.0)
        reply = await self._service(request)
        if request.method == wire_method("describe") and not request.params:
            reply["result"]["methods"] = sorted(
                [*reply["result"]["methods"], *self._described()], key=lambda method: str(method["method"])
            )
        return reply

    def _told(self, request: Request, caller: Caller) -> JsonObject:
        if request.rpc == "orders":
            if request.params:
                raise BadParams("orders takes no parameters")
            return {"rows": [order.to_json() for order in self._orders.all()]}
        id_ = request.params.get("id")
        if not isinstance(id_, str) or len(request.params) != 1:
            raise BadParams(f"{request.rpc} takes one parameter, id, a text")
        order = self._orders.cancel(id_, caller) if request.rpc == "cancel" else self._orders.find(id_)
        return order.to_json()

    def _described(self) -> list[JsonObject]:
        one = [{"name": "id", "type": "string", "required": True, "summary": "The order's id."}]
        questions = [
            _row(method, rpc, summary, [] if rpc == "orders" else one, rpc == "cancel")
            for method, (rpc, summary) in _QUESTIONS.items()
        ]
        return [*questions, *(_described(method, verb) for method, verb in self._verbs.items())]


def _described(method: str, verb: Verb) -> JsonObject:
    params = [
        {"name": param.name, "type": param.kind, "required": param.required, "summary": param.summary}
        for param in verb.params
    ]
    return _row(method, verb.name, verb.summary, params, verb.changes)


def _row(method: str, rpc: str, summary: str, params: list[JsonObject], changes: bool) -> JsonObject:
    return {
        "method": method,
        "rpc": rpc,
        "summary": summary,
        "params": params,
        "deadline_ms": int(_DEFAULT_DEADLINE_SECONDS * 1000),
        "changes": changes,
    }
