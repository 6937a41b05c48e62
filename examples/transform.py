"""A transform: what a worker makes of each batch before it is stored. docs/transform.md has the rules.

Beside `kctl.toml`:

    [workers]
    transform = "transform:paid"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.functions import col, from_json, struct, to_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def paid(frame: DataFrame) -> DataFrame:
    """Only paid orders, with no more of each than the handler needs."""
    order = from_json(col("value").cast("string"), "id string, amount double, status string")
    return (
        frame.withColumn("order", order)
        .where("order.status = 'paid'")  # what is left out counts as read: it is neither stored nor handled
        .withColumn("value", to_json(struct("order.id", "order.amount")).cast("binary"))
        .drop("order")
    )
