"""Describes how to launch each configured process: its name, command, settings and log file."""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from kctl.children import python_module
from kctl.config.forms import size_bytes
from kctl.config.sections import Config
from kctl.config.storage import storage_settings
from kctl.fields import qualified
from kctl.kafka.client.access import of_fleet
from kctl.master.health import HealthRules
from kctl.master.process_supervisor import Launch, SupervisionPolicy
from kctl.master.restart import RestartPolicy
from kctl.schemas import formats
from kctl.secrets import cluster_secret
from kctl_agent.paths import ENGINE_NAME, socket_path
from kctl_agent.rpc.wire import JsonObject
from kctl_agent.storage.sync import sync_file

WORKER_COMMAND = python_module("kctl_agent.worker")
SINKER_COMMAND = python_module("kctl_agent.sinker")
ENGINE_COMMAND = python_module("kctl_agent.engine")

_ENGINE_HANGS = 0.5
"""The engine counts as hung after this share of `kafka.max_poll_interval_seconds`, before the workers that wait for
it."""
_HEAP_SHARE = 4
_WAITING_TASKS = 512
_RANDOM_ID = re.compile(r"[0-9a-f]{32}")
_LOCAL = re.compile(r"local(?:\[(?P<tasks>\d+|\*)(?P<failures>\s*,\s*\d+)?\s*\])?")


def names(config: Config) -> list[str]:
    counts = {"worker": config.workers.count, "sinker": config.sinkers.count}
    engine = [ENGINE_NAME] if _has_engine(config) else []
    return [*engine, *(f"{kind}-{number}" for kind, count in counts.items() for number in range(count))]


def launches(
    config: Config, jars: Iterable[Path], command: Sequence[str] = WORKER_COMMAND, chosen: Iterable[str] | None = None
) -> list[Launch]:
    """Returns the launches of the `chosen` processes, by default of all. `command` applies only to workers."""
    paths = [str(jar) for jar in jars]
    return [_launch(config, name, paths, command) for name in (names(config) if chosen is None else chosen)]


def _launch(config: Config, name: str, jars: Sequence[str], worker_command: Sequence[str]) -> Launch:
    if name == ENGINE_NAME:
        kind, command, settings = "engine", ENGINE_COMMAND, engine_settings(config, jars)
    elif name.startswith("sinker-"):
        kind, command, settings = "sinker", SINKER_COMMAND, sinker_settings(config, name)
    else:
        kind, command, settings = "worker", tuple(worker_command), worker_settings(config, name, jars)
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


def supervision_policies(config: Config) -> dict[str, SupervisionPolicy]:
    workers = config.workers
    policy = SupervisionPolicy(
        restart=RestartPolicy(
            backoff_min_seconds=workers.backoff_min_seconds,
            backoff_max_seconds=workers.backoff_max_seconds,
            stable_seconds=workers.stable_seconds,
        ),
        rules=HealthRules(
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
    engine = replace(
        policy.rules,
        memory_soft_bytes=size_bytes(config.engine.memory_soft),
        memory_hard_bytes=size_bytes(config.engine.memory_hard),
        main_thread_seconds=_ENGINE_HANGS * config.kafka.max_poll_interval_seconds,
        section="engine",
    )
    return {"worker": policy, "sinker": policy, "engine": replace(policy, rules=engine)}


def worker_settings(config: Config, name: str, jars: Sequence[str]) -> JsonObject:
    """Returns the settings for a worker's stdin (see `kctl_agent.worker.settings`)."""
    kafka, workers = config.kafka, config.workers
    return {
        **_process(config, name),
        "kafka": {
            **_fields(kafka, "bootstrap_servers", "group", "topics", "auto_offset_reset", "assignor"),
            **_fields(kafka, "session_timeout_seconds", "max_poll_interval_seconds", "heartbeat_interval_seconds"),
            "isolation_level": kafka.isolation_level,
            "client_id": qualified(config.hosts.own_name, name) if config.hosts.url else "",
            "group_instance_id": _instance_id(config, name) if kafka.static_membership else None,
            "security": of_fleet(config).security._asdict(),  # including secrets
        },
        "pipeline": {
            **_fields(workers, "transform", "max_records_per_batch", "trigger_seconds", "on_data_loss"),
            **_fields(workers, "revoke_timeout_seconds", "on_unreadable"),
            "import_dir": str(config.path.parent),
        },
        "formats": formats(config),
        "spark": None if _has_engine(config) else _spark(config, jars),
        "storage": storage_settings(config) | _handler_inside(config, name),
    }


def _instance_id(config: Config, name: str) -> str:
    # Unique among all hosts, because the broker would fence one of two members with the same id.
    return "-".join(filter(None, (config.fleet.name, config.hosts.own_name, name)))


def _process(config: Config, name: str) -> JsonObject:
    return {
        "name": name,
        "run_dir": str(config.fleet.run_dir),
        "scratch_dir": str(config.fleet.data_dir / "scratch" / name),
        "log_level": config.log.level,
    }


def _fields(section: object, *names: str) -> JsonObject:
    return {name: getattr(section, name) for name in names}


def engine_settings(config: Config, jars: Sequence[str]) -> JsonObject:
    """Returns the settings for an engine's stdin (see `kctl_agent.engine.main`)."""
    workers = max(config.workers.count, 1)
    driver = _spark(config, jars)
    return {
        **_process(config, ENGINE_NAME),
        "spark": driver
        | {
            "master": _for_all(config, workers),
            "driver_memory": config.engine.heap or _heap(size_bytes(config.spark.driver_memory) or 0, workers),
            "workers": max(workers, 2),  # others may be added while it runs
            "conf": _tasks_of_a_batch(config) | driver["conf"],
        },
        "orphan_seconds": config.workers.stop_timeout_seconds,
    }


def _spark(config: Config, jars: Sequence[str]) -> JsonObject:
    spark = config.spark
    return {
        "master": spark.master,
        "driver_memory": spark.driver_memory,
        "jars": list(jars),
        "conf": _of_executors(config) | dict(spark.conf),
        "import_dir": str(config.path.parent) if config.workers.transform else None,
        "auth_secret": cluster_secret(config),
        "storage": storage_settings(config) if config.storage.uri.startswith("s3://") else None,
    }


def _of_executors(config: Config) -> JsonObject:
    # Executors on a cluster need no module of kctl to write a table, so PySpark's daemon serves their Pythons.
    is_spread = config.storage.kind.is_table and _LOCAL.fullmatch(config.spark.master) is None
    return {"spark.python.daemon.module": "pyspark.daemon"} if is_spread else {}


def _has_engine(config: Config) -> bool:
    return config.workers.engine == "shared"


def _for_all(config: Config, workers: int) -> str:
    found = _LOCAL.fullmatch(config.spark.master)
    if found is None:
        return config.spark.master
    # If tasks wait for a slow handler, they must not block other workers.
    tasks = max(_tasks(config.spark.master) * workers, _WAITING_TASKS if config.storage.kind.is_handled_inside else 0)
    return f"local[{tasks}{found['failures'] or ''}]"


def _tasks_of_a_batch(config: Config) -> JsonObject:
    # As many as in a worker's own driver, although the engine has more.
    is_local = _LOCAL.fullmatch(config.spark.master) is not None
    return {"spark.default.parallelism": str(_tasks(config.spark.master))} if is_local else {}


def _tasks(master: str) -> int:
    found = _LOCAL.fullmatch(master)
    given = None if found is None else found["tasks"]
    return len(os.sched_getaffinity(0)) if given == "*" else int(given or 1)


def _heap(driver_bytes: int, workers: int) -> str:
    return f"{max((driver_bytes + driver_bytes * (workers - 1) // _HEAP_SHARE) >> 20, 1)}m"


def sinker_settings(config: Config, name: str) -> JsonObject:
    """Returns the settings for a sinker's stdin (see `kctl_agent.sinker.sinker`)."""
    sinkers = config.sinkers
    return {
        **_handler_settings(config),
        **_process(config, name),
        **_fields(sinkers, "batch_wait_seconds", "lease_seconds"),
        "batch_bytes": size_bytes(sinkers.batch_bytes),
        "owner": f"{_random_id(config.fleet.data_dir)}/{name}",
        "storage": storage_settings(config),
    }


def _random_id(data_dir: Path) -> str:
    # Identifies this host in the storage, because hostnames may be equal.
    path = data_dir / "owner-id"
    with suppress(FileNotFoundError):
        kept = path.read_text(encoding="ascii", errors="replace")
        if _RANDOM_ID.fullmatch(kept):  # otherwise a power cut has damaged it
            return kept
    temporary, drawn = path.with_suffix(".new"), uuid4().hex
    data_dir.mkdir(parents=True, exist_ok=True)
    temporary.write_text(drawn, encoding="ascii")
    sync_file(temporary)
    temporary.replace(path)
    return drawn


def _handler_settings(config: Config) -> JsonObject:
    tries = _fields(config.sinkers, "max_tries", "retry_backoff_seconds", "handler_timeout_seconds")
    calls = _fields(config.sinkers, "handler", "batch_size", "ordered")
    return {**calls, **tries, "import_dir": str(config.path.parent), "formats": formats(config)}


def _handler_inside(config: Config, name: str) -> JsonObject:
    if not config.storage.kind.is_handled_inside:
        return {}
    folder = config.fleet.data_dir / "scratch" / name
    # With an engine, as many calls at a time as the worker's own driver would have tasks.
    slots = {"folder": str(folder), "count": _tasks(config.spark.master)} if _has_engine(config) else None
    return {"handler": _handler_settings(config), "slots": slots}
