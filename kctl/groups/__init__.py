"""Collects all consumer groups of a cluster periodically, of any client, judges them, and keeps them as one
snapshot."""
