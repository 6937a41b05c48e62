"""Checkpoints of Spark Structured Streaming queries that kctl does not run. kctl only reads them."""
