"""Checkpoints of Spark Structured Streaming queries that kctl does not run: read, never written."""
