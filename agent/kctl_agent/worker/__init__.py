"""The Spark worker: a member of its consumer group that reads records with Structured Streaming."""
