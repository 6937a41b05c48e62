"""`kctl kafka brokers`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show

__all__ = ["run"]

_BROKERS = ("node_id", "host", "port", "rack", "controller", "leaders", "replicas", "not_in_sync")


def run(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kctl.kafka.client.layout import BrokerLoad, broker_loads, quorum_leader, topics_of

        loads = broker_loads(topics_of(connection.open(None)).values())
        controller = quorum_leader(connection)
        known = dict(connection.brokers)
        cluster = connection.cluster_id
    rows: list[dict[str, Any]] = []
    for node in sorted(known.keys() | loads.keys()):
        broker = known.get(node)
        rows.append(
            {
                "node_id": node,
                "host": broker and broker.host,
                "port": broker and broker.port,
                "rack": broker and broker.rack,
                "controller": node == controller,
                **loads.get(node, BrokerLoad(0, 0, 0))._asdict(),
                "error": None if broker else "not in the cluster just now",
            }
        )
    show(options, _BROKERS, rows, cluster_id=cluster, controller=controller)
    return 0
