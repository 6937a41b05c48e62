"""The master process: supervises workers, asks agents and brokers, serves `master.sock`. `kctl.start` wires, starts
and stops its parts."""
