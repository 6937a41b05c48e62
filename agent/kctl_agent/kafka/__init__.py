"""What every Kafka client of kctl shares: settings of kafka-python, its errors in plain words, TLS and SASL."""
