"""Attached applications: somebody else's Spark queries as part of a fleet, their reports, log ends and shadow group."""
