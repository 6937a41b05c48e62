"""Compaction of a table's files, and removal of files that are no longer needed."""
