"""A fleet whose masters run on several hosts."""
