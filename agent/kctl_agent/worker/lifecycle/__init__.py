"""The state machine of a worker: what it does next. Pure: no clock, no Spark, no broker, no storage."""
