"""Clients of Kafka clusters: requests and changes of `kctl kafka`, and `polls` of groups for a master."""
