"""What every Kafka client of kctl shares: connection settings, errors in plain words, fixes for kafka-python."""
