"""JSON schemas of the messages that kafka-python 3.0 lacks, for `kctl.kafka.protocol.messages`."""
