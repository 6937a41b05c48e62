"""Polls of groups and of the logs that they read, again and again: `cluster_reader` reads, `broker_cache` keeps."""
