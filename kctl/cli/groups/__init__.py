"""`kctl groups` and `kctl group`: all consumer groups that are collected, asked over HTTP."""
