"""The demo `kctl demo`: a fleet with a real Kafka broker, a producer and an audit, all on this machine.

Acceptance tests use the same broker, topics and tools.
"""
