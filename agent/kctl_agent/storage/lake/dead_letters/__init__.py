"""Messages that a transform could not read: a second table for them, and how they are put back into the first."""
