"""Commands about a running fleet: one module per command; operations are made commands by `operate`."""
