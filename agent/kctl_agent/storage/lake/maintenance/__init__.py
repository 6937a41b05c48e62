"""What keeps a table fast and small: compaction of its files, and removal of those that are no longer needed."""
