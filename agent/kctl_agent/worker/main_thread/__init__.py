"""The turns of a worker's main thread."""
