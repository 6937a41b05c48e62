"""Collects all consumer groups of a cluster, whatever their clients are: polls and judges them periodically, and keeps
them as one snapshot."""
