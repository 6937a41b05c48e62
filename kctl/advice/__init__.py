"""Computes how many workers and sinkers a fleet needs, and when more do not help (docs/advice.md). No clock, no I/O."""
