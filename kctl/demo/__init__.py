"""The demo `kctl demo`: a fleet with a real Kafka broker, a producer and an audit, all on this machine. Acceptance
tests share its tools."""
