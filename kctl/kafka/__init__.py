"""Clients of Kafka clusters: requests and changes of `kctl kafka`, and a master's `polls` of groups."""
