"""The command `kctl start`: checks, wiring of a master's parts, and the master's life. Only this package depends on
all of master, HTTP and exporter."""
