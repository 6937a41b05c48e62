"""Serves `master.sock`, the Unix socket on which the master accepts requests."""
