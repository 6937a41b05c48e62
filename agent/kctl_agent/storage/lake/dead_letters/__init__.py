"""Messages that a transform could not read: a second table, and the way back into the first."""
