"""A Kafka broker as a process, `KafkaBroker`, with its topics: for the demo and for tests."""
