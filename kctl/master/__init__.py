"""The master process: supervises workers, asks agents and brokers, serves `master.sock`.

`restart` decides (pure), `process` holds one child, `supervisor` reconciles them, `collector` takes the fleet's
snapshot, `control` answers on the socket; `kctl.start` puts all of it together, starts and stops it in order.
"""
