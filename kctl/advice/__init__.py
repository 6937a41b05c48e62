"""How many workers and sinkers a fleet needs, and when more would not help: pure, without clock and I/O
(docs/advice.md)."""
