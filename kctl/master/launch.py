"""How the configured workers are started: names, settings and log files, from the configuration alone."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from kctl.config import Config
from kctl.master.keeper import Launch
from kctl.master.restart import Policy
from kctl_agent.paths import socket_path
from kctl_agent.wire import JsonObject

__all__ = ["WORKER_COMMAND", "launches", "policy", "worker_names", "worker_settings"]

WORKER_COMMAND = (sys.executable, "-m", "kctl_agent.worker")


def worker_names(config: Config) -> list[str]:
    """`worker-0` to `worker-(count - 1)`."""
    return [f"worker-{number}" for number in range(config.workers.count)]


def launches(config: Config, jars: Iterable[Path], command: Sequence[str] = WORKER_COMMAND) -> list[Launch]:
    """One launch per worker."""
    paths = [str(jar) for jar in jars]
    return [
        Launch(
            name=name,
            command=command,
            settings=worker_settings(config, name, paths),
            log_path=config.fleet.log_dir / f"{name}.log",
            socket_path=socket_path(config.fleet.run_dir, name),
            start_timeout_seconds=config.workers.start_timeout_seconds,
            stop_timeout_seconds=config.workers.stop_timeout_seconds,
        )
        for name in worker_names(config)
    ]


def policy(config: Config) -> Policy:
    workers = config.workers
    return Policy(
        backoff_min_seconds=workers.backoff_min_seconds,
        backoff_max_seconds=workers.backoff_max_seconds,
        stable_seconds=workers.stable_seconds,
        max_failures=workers.max_failures,
    )


def worker_settings(config: Config, name: str, jars: Sequence[str]) -> JsonObject:
    """The one line of JSON that a worker reads from its stdin; `kctl_agent.worker.settings` is the other side."""
    kafka, workers, spark, storage = config.kafka, config.workers, config.spark, config.storage
    return {
        "name": name,
        "run_dir": str(config.fleet.run_dir),
        "scratch_dir": str(config.fleet.data_dir / "scratch" / name),
        "log_level": config.log.level,
        "kafka": {
            "bootstrap_servers": kafka.bootstrap_servers,
            "group": kafka.group,
            "topics": list(kafka.topics),
            "auto_offset_reset": kafka.auto_offset_reset,
            "assignor": kafka.assignor,
            "session_timeout_seconds": kafka.session_timeout_seconds,
            "heartbeat_interval_seconds": kafka.heartbeat_interval_seconds,
            "isolation_level": kafka.isolation_level,
            "group_instance_id": f"{config.fleet.name}-{name}" if kafka.static_membership else None,
        },
        "pipeline": {
            "spark_master": spark.master,
            "driver_memory": spark.driver_memory,
            "jars": list(jars),
            "conf": dict(spark.conf),
            "transform": workers.transform,
            "max_records_per_batch": workers.max_records_per_batch,
            "trigger_seconds": workers.trigger_seconds,
            "on_data_loss": workers.on_data_loss,
            "revoke_timeout_seconds": workers.revoke_timeout_seconds,
        },
        "storage": {
            "mode": storage.mode,
            "path": str(storage.path),
            "block_messages": storage.block_messages,
            "compression": storage.compression,
            "limit": storage.limit,
        },
    }
