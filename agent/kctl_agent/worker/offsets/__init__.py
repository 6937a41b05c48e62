"""Start offsets and reading progress."""
