"""Commands for a running fleet, one module each. `operate` makes commands from operations."""
