"""Polls of groups and of the logs that they read: `cluster_reader` reads, `broker_cache` keeps."""
