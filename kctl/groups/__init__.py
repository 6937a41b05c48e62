"""Collects all consumer groups of a cluster, regardless of their clients. A collector periodically polls the groups,
judges them and keeps the result as a snapshot."""
