"""The streaming query: driver side, executor side, and the user's transform between them."""
