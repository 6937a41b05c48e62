"""Polls groups and the logs that they read. `kctl.groups.broker_cache` caches a fleet's results."""
