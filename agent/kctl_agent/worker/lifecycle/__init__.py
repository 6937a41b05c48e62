"""The state machine of a worker. Pure: no clock, Spark, broker or storage."""
