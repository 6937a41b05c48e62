"""`kctl groups`, `kctl group` and `kctl top --groups`: what is collected of every consumer group, asked over HTTP."""
