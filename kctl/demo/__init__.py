"""`kctl demo`: a fleet with a real Kafka broker, a producer and an audit. Acceptance tests share its tools."""
