"""`kctl groups`, `kctl group` and `kctl top --groups`: all consumer groups that are collected, asked over HTTP."""
