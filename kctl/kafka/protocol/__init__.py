"""The parts of Kafka's protocol that kafka-python lacks, or decodes too slowly for 100,000 partitions."""
