"""The demo `kctl demo`: a fleet with everything around it on this machine, a real Kafka broker, a producer, an audit.

The same broker, topics and tools serve the acceptance tests. Import what you need from the modules.
"""
