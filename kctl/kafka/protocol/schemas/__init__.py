"""Messages that kafka-python 3.0 lacks, in Kafka's own JSON format; read by `kctl.kafka.protocol.messages`."""
