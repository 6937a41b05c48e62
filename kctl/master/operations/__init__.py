"""Executes the operations of `kctl.operations` and records their outcomes. Rejects an operation that conflicts with a
running one."""
