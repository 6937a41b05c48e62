"""The master process: supervises workers, asks agents and brokers, serves `master.sock`.

`restart` decides (pure), `process` holds one child, `supervisor` reconciles them, `collector` takes the fleet's
snapshot, `control` answers on the socket, `main` starts and stops all of it in order.
"""

from __future__ import annotations

__all__: list[str] = []
