"""Messages as rows of a lake's table, for others to query."""
