"""`kctl groups` and `kctl group`: get consumer groups over HTTP."""
