"""`kctl kafka api-versions`"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from kctl.cli.kafka.cluster import connected
from kctl.cli.kafka.output import show
from kctl.errors import KctlError, UsageError

_VERSIONS = ("broker", "key", "api", "versions", "ours", "used")


def api_versions(options: argparse.Namespace, env: Mapping[str, str]) -> int:
    with connected(options, env) as connection:
        from kafka.protocol.api_key import ApiKey

        known = _known_versions()
        connection.open()
        nodes = [options.broker] if options.broker is not None else sorted(connection.brokers)
        if options.broker is not None and options.broker not in connection.brokers:
            raise UsageError(f"there is no broker {options.broker}; there are {sorted(connection.brokers)}")
        opened = connection.connections(nodes)
        rows: list[dict[str, Any]] = []
        problems = []
        for node, answer in opened.items():
            if isinstance(answer, KctlError):
                problems.append(answer)
                continue
            for key, (low, high) in sorted(answer.broker_version_data.api_versions.items()):
                ours = known.get(key)
                used = None if ours is None or ours < low else min(ours, high)
                name = ApiKey(key).name if key in ApiKey._value2member_map_ else None
                rows.append(
                    {
                        "broker": node,
                        "key": key,
                        "api": name,
                        "versions": f"{low}-{high}",
                        "ours": None if ours is None else f"0-{ours}",
                        "used": used,
                    }
                )
    show(options, _VERSIONS, rows, problems)
    return 0


def _known_versions() -> dict[int, int]:
    """Returns the highest version of each request that kafka-python knows, or kctl, by the number of the request."""
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer  # noqa: F401 - they import all requests there are
    from kafka.protocol.api_message import ApiMessage

    from kctl.kafka.protocol import messages  # noqa: F401 - as above

    kinds: list[Any] = [kind for kind in ApiMessage.__subclasses__() if kind.__name__.endswith("Request")]
    return {kind.API_KEY: kind.max_version for kind in kinds}
