"""Execution of operations: conflicting ones one at a time, each with an outcome. `kctl.operations` has the
operations."""
