"""Attached applications: Spark queries that kctl does not run, shown as part of a fleet."""
