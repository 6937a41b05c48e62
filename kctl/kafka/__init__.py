"""Clients of Kafka clusters. The commands of `kctl kafka` use them, and a master polls groups with `polls`."""
