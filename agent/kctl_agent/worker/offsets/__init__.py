"""Start offsets and reading progress, from what brokers, storage and group know."""
