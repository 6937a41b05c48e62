"""A storage that keeps messages as rows of a lake's table, which other engines can query."""
