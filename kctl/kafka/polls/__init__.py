"""Polls groups and the logs that they read."""
