"""Orders to the fleet: what may be ordered, one at a time where they would contradict, each with an outcome."""

from kctl.master.orders.base import Caller, Order, Verb
from kctl.master.orders.context import Context
from kctl.master.orders.ledger import Orders
from kctl.master.orders.table import verbs

__all__ = ["Caller", "Context", "Order", "Orders", "Verb", "verbs"]
