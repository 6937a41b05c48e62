"""Collects consumer groups of a cluster, including those without kctl workers. A collector periodically polls the
groups, assesses their status and keeps the result as a snapshot."""
