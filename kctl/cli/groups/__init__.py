"""The commands `kctl groups` and `kctl group`, which ask for consumer groups over HTTP."""
