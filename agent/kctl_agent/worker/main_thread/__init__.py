"""The turns of the main thread."""
