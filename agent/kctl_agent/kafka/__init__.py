"""Connection settings, errors in plain words, and fixes for kafka-python, shared by kctl's Kafka clients."""
