"""A transform for `storage.mode = "lake"`: JSON orders become typed columns, one row for each item of an order.

    [workers]
    transform = "items:parsed"

    [storage]
    mode = "lake"
    uri = "file:///srv/lake/items"
    partition_by = ["country"]

Keep topic, partition and offset: by them each row can be traced to its message, and a message that is no JSON, which
`_kctl_error` marks, becomes a dead letter (`kctl storage dead list`).
"""

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, explode_outer, from_json, when

ORDER = "id long, country string, items array<string>, not_read string"


def parsed(frame: DataFrame) -> DataFrame:
    order = from_json(col("value").cast("string"), ORDER, {"columnNameOfCorruptRecord": "not_read"})
    typed = frame.select("topic", "partition", "offset", "timestamp", order.alias("order"))
    return typed.select(
        "topic",
        "partition",
        "offset",
        "timestamp",
        "order.id",
        "order.country",
        explode_outer("order.items").alias("item"),
        when(col("order.not_read").isNotNull(), "it is no JSON order").alias("_kctl_error"),
    )
