"""Who has ordered what, how far it has come, and that no two orders contradict each other."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from kctl import audit
from kctl.errors import KctlError, NoSuchOrder, OrderRefused
from kctl.master.orders.base import Caller, Order, Verb, check, contradiction
from kctl_agent.errors import AgentError, BadParams, UnknownMethod
from kctl_agent.messages import printable_name
from kctl_agent.wire import JsonObject

__all__ = ["Orders"]

log = logging.getLogger(__name__)

_KEPT = 500
_SHORT_SECONDS = 0.2
"""A long order that ends within this time, well or badly, is answered with its end."""


class Orders:
    """Belongs to one event loop. Each order is one task with a deadline; its end is an audit line."""

    def __init__(self, verbs: Mapping[str, Verb], audit_path: Path | None) -> None:
        """Audit lines go to the log, and as JSON lines to `audit_path`."""
        self.verbs = verbs
        self.counts: Counter[tuple[str, str]] = Counter()
        """(verb, outcome) to how often; outcomes are `done`, `failed`, `refused`."""
        self.listeners: list[Callable[[Order], None]] = []
        """Told of each order that began or ended."""
        self._audit_path = audit_path
        self._orders: dict[str, Order] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._ids = itertools.count(1)
        self._is_closed = False

    async def give(self, name: str, params: JsonObject, caller: Caller, wait_seconds: float) -> Order:
        """Begins an order and returns it when it has ended, at the latest after `wait_seconds`; a long one at once.

        Raises:
            UnknownMethod, BadParams: it cannot be understood.
            OrderRefused: it contradicts one under way, or cannot be carried out; nothing was changed.
        """
        verb = self.verbs.get(name)
        if verb is None:
            raise UnknownMethod(f"there is no order {printable_name(name)}; there are {', '.join(sorted(self.verbs))}")
        try:
            order = self._begun(verb, params, caller)
        except (OrderRefused, BadParams) as error:
            self.counts[name, "refused"] += 1
            log.warning("action=order_refused verb=%s by=%s via=%s: %s", name, caller.name, caller.via, error)
            raise
        task = self._tasks[order.id]
        await asyncio.wait([task], timeout=min(wait_seconds, _SHORT_SECONDS) if verb.is_long else wait_seconds)
        return self._orders[order.id]

    def find(self, id_: str) -> Order:
        """Raises NoSuchOrder when no order of this id is known."""
        order = self._orders.get(id_)
        if order is None:
            raise NoSuchOrder(f"there is no order {printable_name(id_)}; `kctl orders` lists those that are known")
        return order

    def all(self) -> list[Order]:
        """The youngest first; the last 500."""
        return list(reversed(self._orders.values()))

    def cancel(self, id_: str, caller: Caller) -> Order:
        """What it has done already stays done.

        Raises:
            NoSuchOrder: it is not known.
            OrderRefused: it has ended.
        """
        order = self.find(id_)
        if order.state != "running":
            raise OrderRefused(f"order {id_} has ended already")
        self._tasks[id_].cancel(f"cancelled by {caller.name}")
        return order

    async def close(self) -> None:
        """Ends what is under way; nothing is begun any more."""
        self._is_closed = True
        for task in self._tasks.values():
            task.cancel("the master stops")
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _begun(self, verb: Verb, params: JsonObject, caller: Caller) -> Order:
        if self._is_closed:
            raise OrderRefused("the master is stopping, it takes no orders any more")
        check(verb, params)
        touches = verb.touches(params)
        running = [self._orders[id_] for id_ in self._tasks]
        other = contradiction(running, touches)
        if other is not None:
            raise OrderRefused(
                f"order {other.id} ({other.words}, by {other.by}) is under way: wait for it, or "
                f"`kctl order {other.id} --cancel`"
            )
        order = Order(
            id=str(next(self._ids)),
            verb=verb.name,
            params={key: value for key, value in params.items() if key != "deadline_seconds"},
            by=caller.name,
            uid=caller.uid,
            via=caller.via,
            started_at=time.time(),
            deadline_seconds=float(params.get("deadline_seconds", verb.deadline_seconds(params))),
            touches=touches,
        )
        self._orders[order.id] = order
        self._forget_old()
        self._tasks[order.id] = asyncio.create_task(self._carry(verb, order, caller), name=f"order {order.id}")
        for listener in self.listeners:
            listener(order)
        return order

    async def _carry(self, verb: Verb, order: Order, caller: Caller) -> None:
        def tell(text: str) -> None:
            self._orders[order.id] = replace(self._orders[order.id], text=text)

        try:
            async with asyncio.timeout(order.deadline_seconds):
                text, result = await verb.carry(order.params, caller, tell)
            self._end(order.id, "done", text, result)
        except TimeoutError:
            so_far = self._orders[order.id].text
            self._end(
                order.id, "failed", f"not finished within {order.deadline_seconds:g} s; {so_far or 'no progress'}"
            )
        except asyncio.CancelledError as cancelled:
            self._end(order.id, "failed", str(cancelled) or "cancelled")
        except (KctlError, AgentError) as error:
            self._end(order.id, "failed", str(error))
        except Exception:
            log.exception("action=order_failed id=%s verb=%s", order.id, order.verb)
            self._end(order.id, "failed", "a defect in kctl; the master's log says where")
        finally:
            del self._tasks[order.id]

    def _end(self, id_: str, state: str, text: str, result: JsonObject | None = None) -> None:
        order = self._orders[id_] = replace(
            self._orders[id_],
            state="done" if state == "done" else "failed",
            text=text,
            result=result or {},
            ended_at=time.time(),
        )
        self.counts[order.verb, order.state] += 1
        log.info(
            "action=order id=%s by=%s uid=%s via=%s seconds=%.1f outcome=%s order=%s: %s",
            id_,
            order.by,
            order.uid,
            order.via,
            (order.ended_at or 0) - order.started_at,
            order.state,
            json.dumps(order.words),
            order.text,
        )
        self._write_down(order)
        for listener in self.listeners:
            listener(order)

    def _write_down(self, order: Order) -> None:
        """One line of a few hundred bytes; a disk that is full must not keep an order from being carried out."""
        if self._audit_path is None:
            return
        try:
            audit.append(self._audit_path, {key: value for key, value in order.to_json().items() if key != "result"})
        except OSError as error:
            log.error("action=audit_failed id=%s: %s", order.id, error.strerror)

    def _forget_old(self) -> None:
        ended = [id_ for id_ in self._orders if id_ not in self._tasks]
        for id_ in ended[: max(len(self._orders) - _KEPT, 0)]:
            del self._orders[id_]
