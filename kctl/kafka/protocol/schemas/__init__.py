"""Messages that kafka-python 3.0 lacks, in Kafka's JSON format, for `kctl.kafka.protocol.messages`."""
