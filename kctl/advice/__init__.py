"""Computes how many workers and sinkers a fleet needs, and when more would not help (docs/advice.md). Uses no clock and
no I/O."""
