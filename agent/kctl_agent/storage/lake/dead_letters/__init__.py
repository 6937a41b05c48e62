"""The table of messages that a transform could not read, and how they are requeued."""
