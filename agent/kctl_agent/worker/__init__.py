"""The Spark worker: a true member of its consumer group whose records are read by Structured Streaming."""
