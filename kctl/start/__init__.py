"""Runs `kctl start` and `kctl exporter`. Only this package depends on all of master, HTTP and exporter."""
