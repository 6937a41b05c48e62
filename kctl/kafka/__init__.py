"""Clients of Kafka clusters. The commands of `kctl kafka` use them. A master polls groups with `polls`."""
