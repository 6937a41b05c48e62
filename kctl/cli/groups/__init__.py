"""`kctl groups` and `kctl group`: all collected consumer groups, over HTTP."""
