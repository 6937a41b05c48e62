"""The master process: supervises workers, asks agents and brokers, serves `master.sock`.

`restart` decides (pure), `process` controls one child, `supervisor` reconciles them, `collector` takes the fleet's
snapshot, `control` answers on the socket; `kctl.start` wires, starts and stops them.
"""
