"""Clients of Kafka clusters: for the commands of `kctl kafka`, and in `polls` for a master that polls groups."""
