"""Messages as rows of a table in a lake, which others query."""
