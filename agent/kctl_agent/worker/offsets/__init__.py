"""Start offsets and reading progress, from the answers of brokers, storage and group."""
