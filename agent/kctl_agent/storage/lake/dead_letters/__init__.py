"""Messages that a transform could not read: a second table, and how they are requeued from it."""
