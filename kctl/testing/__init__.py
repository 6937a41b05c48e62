"""A Kafka broker and a Redis server as processes, `KafkaBroker` and `RedisServer`: for the demo and for tests."""
