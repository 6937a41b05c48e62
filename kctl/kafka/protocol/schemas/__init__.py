"""JSON schemas of the messages that kafka-python 3.0 misses, for `kctl.kafka.protocol.messages`."""
