"""Executes operations, conflicting ones one at a time; each has an outcome. `kctl.operations` has the operations."""
