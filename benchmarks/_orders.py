"""Values of messages that compress as real ones do: orders in JSON, 200 bytes on average."""

import json
import random
from pathlib import Path

__all__ = ["ORDER", "orders"]

ORDERS = 200_000
"""Different ones; a block holds 500."""
ORDER = (
    "order_id long, customer long, status string, amount double, currency string, "
    "items array<struct<sku: string, qty: int>>, at timestamp"
)
"""Their schema, as Spark has it."""


def orders(place: Path) -> Path:
    """A file of values, one a line."""
    drawn = random.Random(1)
    orders = (
        {
            "order_id": 10_000_000 + number,
            "customer": drawn.randrange(1_000_000),
            "status": drawn.choice(("created", "paid", "shipped", "cancelled")),
            "amount": drawn.randrange(50_000) / 100,
            "currency": "EUR",
            "items": [{"sku": f"A-{drawn.randrange(100_000):05}", "qty": drawn.randrange(1, 9)} for _ in range(2)],
            "at": f"2026-11-22T05:{drawn.randrange(60):02}:{drawn.randrange(60):02}.{drawn.randrange(1000):03}Z",
        }
        for number in range(ORDERS)
    )
    path = place / "operations.jsonl"
    path.write_text("".join(json.dumps(order) + "\n" for order in orders), encoding="utf-8")
    return path
