"""The command `kctl start`: what must hold, how the parts of a master are put together, and the master's life.

Nothing below imports it: this is the one place that knows master, HTTP and exporter alike.
"""
