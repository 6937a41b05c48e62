"""Compaction of a table's files, and removal of those that are no longer needed."""
