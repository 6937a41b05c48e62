"""Commands for a running fleet."""
