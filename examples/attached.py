"""An application of your own that stays as it is: `attach` is the only line that is new.

    spark-submit --packages org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 \\
        --conf spark.sql.shuffle.partitions=2 attached.py 127.0.0.1:9092 orders run

`kctl rpc offset_checker` of the fleet whose run_dir is `run` then shows it beside the workers, and with `commit_group`
`kafka-consumer-groups --describe --group report-shadow` sees how far it has read. More in docs/attach.md.
"""

import sys

from pyspark.sql import SparkSession

import kctl_agent

servers, topic, run_dir = sys.argv[1:4]
spark = SparkSession.builder.appName("report").getOrCreate()
kctl_agent.attach(spark, name="report", run_dir=run_dir, commit_group="report-shadow")

records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", servers)
    .option("subscribe", topic)
    .option("startingOffsets", "earliest")
    .load()
)
counts = records.groupBy("topic", "partition").count()
counts.writeStream.outputMode("complete").format("memory").queryName("counts").start().awaitTermination()
