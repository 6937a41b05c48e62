"""Requests to masters and agents over Unix sockets."""
