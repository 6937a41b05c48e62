"""The master process, which supervises workers, asks agents and brokers, and serves `master.sock`. `kctl.start`
connects, starts and stops the master's parts."""
