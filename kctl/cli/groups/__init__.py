"""The commands `kctl groups` and `kctl group`, which get consumer groups over HTTP."""
