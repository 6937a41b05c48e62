"""A storage that keeps messages as rows of a Delta table, which other engines can query."""
