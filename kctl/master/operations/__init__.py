"""Runs the `kctl.operations` and records their outcomes. Rejects an operation that conflicts with a running one."""
