"""Clients of Kafka clusters, for the commands of `kctl kafka`. `polls` polls groups for masters and exporters."""
