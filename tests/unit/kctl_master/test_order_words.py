"""How an order is named in events, logs and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from kctl.master.events import told_orders
from kctl.master.orders.base import Order


def order(verb: str, **params: Any) -> Order:
    return Order("1", verb, params, "root", 0, "socket", 1.0, 30.0, frozenset(), state="done", ended_at=2.0)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (order("restart", all=True, rolling=True), "restart all rolling"),
        (order("restart", name="worker-0,worker-1", rolling=False), "restart worker-0,worker-1"),
        (order("pause", topic="orders", partition=0), "pause topic orders partition 0"),
        (order("seek", topic="orders", to="earliest", dry_run=True), "seek topic orders to earliest dry-run"),
        (order("log_level", name="master", level="DEBUG"), "log-level master DEBUG"),
        (order("drain", name="worker-0", deadline_seconds=5.0), "drain worker-0 within 5 s"),
    ],
)
def test_an_order_is_named_as_one_would_type_it(given: Order, words: str) -> None:
    assert given.words == words
    assert [event.text for event in told_orders(given)] == [f"{words}, by root: done"]
