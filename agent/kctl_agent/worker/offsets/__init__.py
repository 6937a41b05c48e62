"""Start offsets and reading progress: what brokers, storage and group know, compared with each other."""
