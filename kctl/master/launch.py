"""How the configured workers and sinkers are started: names, settings and log files, from the configuration alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from kctl.children import python_module
from kctl.config import Config
from kctl.config.sections import size_bytes
from kctl.config.storage import storage_settings
from kctl.kafka.access import of_fleet
from kctl.master.health import Rules
from kctl.master.process_supervisor import Launch, SupervisionPolicy
from kctl.master.restart import RestartPolicy
from kctl.secrets import cluster_secret
from kctl_agent.paths import socket_path
from kctl_agent.wire import JsonObject

__all__ = [
    "SINKER_COMMAND",
    "WORKER_COMMAND",
    "launches",
    "names",
    "sinker_launches",
    "sinker_settings",
    "supervision_policy",
    "worker_settings",
]

WORKER_COMMAND = python_module("kctl_agent.worker")
SINKER_COMMAND = python_module("kctl_agent.sinker")


def names(config: Config) -> list[str]:
    """All that is supervised: `worker-0` to `worker-(count - 1)`, `sinker-0` and so on."""
    return [*_numbered("worker", config.workers.count), *_numbered("sinker", config.sinkers.count)]


def launches(config: Config, jars: Iterable[Path], command: Sequence[str] = WORKER_COMMAND) -> list[Launch]:
    """One launch per worker."""
    paths = [str(jar) for jar in jars]
    return [
        _launch(config, "worker", name, command, worker_settings(config, name, paths))
        for name in _numbered("worker", config.workers.count)
    ]


def sinker_launches(config: Config) -> list[Launch]:
    """One launch per sinker."""
    return [
        _launch(config, "sinker", name, SINKER_COMMAND, sinker_settings(config, name))
        for name in _numbered("sinker", config.sinkers.count)
    ]


def supervision_policy(config: Config) -> SupervisionPolicy:
    """When they are restarted and what counts as unhealthy, as `[workers]` sets it."""
    workers = config.workers
    return SupervisionPolicy(
        restart=RestartPolicy(
            backoff_min_seconds=workers.backoff_min_seconds,
            backoff_max_seconds=workers.backoff_max_seconds,
            stable_seconds=workers.stable_seconds,
            max_failures=workers.max_failures,
        ),
        rules=Rules(
            ping_timeout_seconds=workers.ping_timeout_seconds,
            memory_soft_bytes=size_bytes(workers.memory_soft),
            memory_hard_bytes=size_bytes(workers.memory_hard),
            memory_breaches=workers.memory_breaches,
            stalled_seconds=workers.stalled_seconds or None,
            main_thread_seconds=config.kafka.max_poll_interval_seconds,
        ),
        ping_interval_seconds=workers.ping_interval_seconds,
        memory_interval_seconds=workers.memory_interval_seconds,
    )


def worker_settings(config: Config, name: str, jars: Sequence[str]) -> JsonObject:
    """The one line of JSON that a worker reads from its stdin; `kctl_agent.worker.settings` is the other side."""
    kafka, workers, spark = config.kafka, config.workers, config.spark
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
            "max_poll_interval_seconds": kafka.max_poll_interval_seconds,
            "heartbeat_interval_seconds": kafka.heartbeat_interval_seconds,
            "isolation_level": kafka.isolation_level,
            "group_instance_id": f"{config.fleet.name}-{name}" if kafka.static_membership else None,
            "security": _security(config),
        },
        "pipeline": {
            "spark_master": spark.master,
            "driver_memory": spark.driver_memory,
            "jars": list(jars),
            "conf": dict(spark.conf),
            "transform": workers.transform,
            "import_dir": str(config.path.parent),
            "max_records_per_batch": workers.max_records_per_batch,
            "trigger_seconds": workers.trigger_seconds,
            "on_data_loss": workers.on_data_loss,
            "revoke_timeout_seconds": workers.revoke_timeout_seconds,
            "auth_secret": cluster_secret(config),
        },
        "storage": storage_settings(config) | _handler_inside(config),
    }


def _security(config: Config) -> JsonObject | None:
    """TLS and SASL as `kctl_agent.worker.security.Security` has them, secrets and all; None: plain."""
    access = of_fleet(config)
    if access.security_protocol == "PLAINTEXT":
        return None
    files = {name: getattr(access, name) for name in ("ca_file", "certificate_file", "key_file", "token_file")}
    return {
        "protocol": access.security_protocol,
        **{name: None if path is None else str(path) for name, path in files.items()},
        "key_password": access.key_password,
        "check_hostname": access.check_hostname,
        "mechanism": access.mechanism,
        "username": access.username,
        "password": access.password,
    }


def sinker_settings(config: Config, name: str) -> JsonObject:
    """The one line of JSON that a sinker reads from its stdin; `kctl_agent.sinker.settings` is the other side."""
    sinkers = config.sinkers
    return {
        **_handler_settings(config),
        "name": name,
        "run_dir": str(config.fleet.run_dir),
        "scratch_dir": str(config.fleet.data_dir / "scratch" / name),
        "log_level": config.log.level,
        "batch_wait_seconds": sinkers.batch_wait_seconds,
        "lease_seconds": sinkers.lease_seconds,
        "batch_bytes": size_bytes(sinkers.batch_bytes),
        "storage": storage_settings(config),
    }


def _handler_settings(config: Config) -> JsonObject:
    """The settings of the handler, whatever process calls it; `kctl_agent.sinker.directly.HandlerSettings`."""
    sinkers = config.sinkers
    return {
        "handler": sinkers.handler,
        "import_dir": str(config.path.parent),
        "batch_size": sinkers.batch_size,
        "max_tries": sinkers.max_tries,
        "retry_backoff_seconds": sinkers.retry_backoff_seconds,
        "handler_timeout_seconds": sinkers.handler_timeout_seconds,
        "ordered": sinkers.ordered,
    }


def _handler_inside(config: Config) -> JsonObject:
    """With mode `directly` the workers call the handler themselves."""
    return {"handler": _handler_settings(config)} if config.storage.mode == "directly" else {}


def _numbered(kind: str, count: int) -> list[str]:
    return [f"{kind}-{number}" for number in range(count)]


def _launch(config: Config, kind: str, name: str, command: Sequence[str], settings: JsonObject) -> Launch:
    return Launch(
        name=name,
        command=command,
        settings=settings,
        log_path=config.fleet.log_dir / f"{name}.log",
        socket_path=socket_path(config.fleet.run_dir, name),
        start_timeout_seconds=config.workers.start_timeout_seconds,
        stop_timeout_seconds=config.workers.stop_timeout_seconds,
        kind=kind,
    )
