"""The turns of the main thread, and what it does in them."""
