"""Computes how many workers and sinkers a fleet needs, and when more would not help (docs/advice.md). Pure, without
clock and I/O."""
