"""Commands about a running fleet: one module per command. `rpc` and `status` do without Typer, to be fast."""
