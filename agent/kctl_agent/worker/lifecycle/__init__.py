"""The state machine of a worker. It uses no clock, Spark, broker or storage."""
