"""The one table of settings: each field is a key, with type, default, unit, allowed values and a sentence.

`load.py` reads it to check a file, `reference.py` to write docs/configuration.md; nothing else declares a setting.
"""

# ruff: noqa: RUF009 - setting() returns dataclasses.field(), so nothing is shared between instances

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "SECTIONS",
    "Collect",
    "Config",
    "Fleet",
    "Http",
    "Kafka",
    "Log",
    "Spark",
    "Storage",
    "Workers",
]

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
TOPIC = r"[A-Za-z0-9._-]{1,249}"
"""Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
SERVER = r"(\[[0-9A-Fa-f:]+\]|[^\s,:\[\]]+):\d{1,5}"
SERVERS = f"{SERVER}(,{SERVER})*"
REQUIRED = object()


def setting(
    default: object,
    sentence: str,
    *,
    unit: str | None = None,
    choices: tuple[str, ...] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    pattern: tuple[str, str] | None = None,
) -> Any:
    """Declare one setting; `pattern` is a regular expression that the text, or each item of a list, must match in full,
    and the words in which an error describes it."""
    metadata = {
        "sentence": sentence,
        "unit": unit,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "pattern": pattern,
        "required": default is REQUIRED,
    }
    if default is REQUIRED:
        return field(metadata=metadata)
    if isinstance(default, dict):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """What this fleet is called and where it lives. Relative paths are relative to the configuration file."""

    name: str = setting(
        "kctl",
        "The fleet's name, as it is listed when several run.",
        pattern=(NAME, "letters, digits, `.`, `_` or `-`"),
    )
    run_dir: Path = setting(Path("run"), "Sockets and `master.json`; created with mode 0700, for this user alone.")
    data_dir: Path = setting(Path("data"), "What must survive a restart, and Spark's scratch folders.")
    log_dir: Path = setting(Path("logs"), "One log file per process.")


@dataclass(frozen=True, kw_only=True)
class Kafka:
    """The brokers, the consumer group and the topics."""

    cluster: str = setting("default", "A name for the Kafka cluster; the label `cluster` of every metric.")
    bootstrap_servers: str = setting(
        REQUIRED,
        "The brokers to ask first, as `host:port`, separated by commas.",
        pattern=(SERVERS, "`host:port`, several separated by commas"),
    )
    group: str = setting(REQUIRED, "The consumer group that the workers join.", pattern=(r"\S.*", "a name"))
    topics: tuple[str, ...] = setting(
        REQUIRED,
        "The topics to read; each must exist when the fleet starts.",
        pattern=(TOPIC, "topic names of letters, digits, `.`, `_` and `-`"),
    )
    auto_offset_reset: str = setting(
        "earliest", "Where to begin when the group has committed nothing.", choices=("earliest", "latest")
    )
    assignor: str = setting(
        "cooperative-sticky",
        "How partitions are shared out among the members.",
        choices=("range", "roundrobin", "sticky", "cooperative-sticky"),
    )
    session_timeout_seconds: float = setting(
        10.0, "A worker that is silent for so long loses its partitions.", unit="seconds", minimum=1.0, maximum=1800.0
    )
    heartbeat_interval_seconds: float = setting(
        1.0,
        "How often a worker tells the group that it lives; less than the session timeout.",
        unit="seconds",
        minimum=0.1,
        maximum=600.0,
    )
    isolation_level: str = setting(
        "read_uncommitted",
        "Whether records of open and aborted transactions are read; with `read_committed` the end of a partition is "
        "its last stable offset.",
        choices=("read_uncommitted", "read_committed"),
    )
    static_membership: bool = setting(
        False, "Workers keep their partitions over a quick restart (`group.instance.id` is fleet and worker name)."
    )


@dataclass(frozen=True, kw_only=True)
class Workers:
    """How many workers, what a batch is, and how they are started, stopped and started again."""

    count: int = setting(1, "How many workers the master runs.", minimum=0, maximum=1000)
    transform: str = setting(
        "",
        "A stateless DataFrame -> DataFrame function, `module:function`, that keeps Kafka's coordinates; empty: none.",
        pattern=(r"|[A-Za-z_][\w.]*:[A-Za-z_]\w*", "`module:function`"),
    )
    max_records_per_batch: int = setting(100_000, "The most records of one batch.", unit="records", minimum=1)
    trigger_seconds: float = setting(
        0.0, "The least time from the start of one batch to the next; 0: at once.", unit="seconds", minimum=0.0
    )
    on_data_loss: str = setting(
        "continue",
        "What to do when retention removed records before they were read; it is counted and reported either way.",
        choices=("continue", "stop"),
    )
    revoke_timeout_seconds: float = setting(
        15.0,
        "How long a running batch may take to finish when its partitions are revoked; then it is abandoned.",
        unit="seconds",
        minimum=0.0,
    )
    start_timeout_seconds: float = setting(
        60.0, "A worker must answer a ping within this time after its start.", unit="seconds", minimum=1.0
    )
    stop_timeout_seconds: float = setting(
        30.0, "How long a worker may take to stop before it is killed.", unit="seconds", minimum=0.0
    )
    backoff_min_seconds: float = setting(
        1.0, "The wait before a worker that died is started again; doubles each time.", unit="seconds", minimum=0.0
    )
    backoff_max_seconds: float = setting(60.0, "The longest such wait.", unit="seconds", minimum=0.0)
    stable_seconds: float = setting(
        30.0,
        "A worker that has run for so long is stable: the next wait is the shortest again.",
        unit="seconds",
        minimum=0.0,
    )
    max_failures: int = setting(
        10, "A worker that died so often in a row without becoming stable is given up.", minimum=1
    )


@dataclass(frozen=True, kw_only=True)
class Spark:
    """The Spark session of each worker."""

    master: str = setting("local[2]", "Spark's master URL: `local[k]`, `spark://…`, `k8s://…` or `yarn`.")
    driver_memory: str = setting(
        "512m",
        "The heap of each driver's JVM.",
        pattern=(r"[1-9]\d*[kmgtKMGT]", "a number and a unit, such as `512m` or `2g`"),
    )
    jars: tuple[Path, ...] = setting(
        (), "Jars to use instead of the locked connector jars, which are fetched when this is empty."
    )
    conf: Mapping[str, str] = setting({}, "Any further Spark properties, passed on as they are.")


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where fetched messages wait for the handler."""

    mode: str = setting("file", "The kind of storage: one SQLite file.", choices=("file",))
    path: Path = setting(Path("data/storage.sqlite"), "The SQLite file; all workers share it. Not on NFS.")
    block_messages: int = setting(500, "The most messages of one block.", unit="messages", minimum=1, maximum=100_000)
    compression: str = setting("none", "How blocks are compressed.", choices=("none", "snappy", "lz4", "zstd"))
    limit: int = setting(
        0, "With so many messages waiting the workers take no new batch; 0: no limit.", unit="messages", minimum=0
    )


@dataclass(frozen=True, kw_only=True)
class Collect:
    """How the master gathers its figures."""

    interval_seconds: float = setting(
        1.0, "How often agents and brokers are asked.", unit="seconds", minimum=0.1, maximum=3600.0
    )
    timeout_seconds: float = setting(
        2.0, "Who has not answered by then is reported as missing.", unit="seconds", minimum=0.05, maximum=600.0
    )


@dataclass(frozen=True, kw_only=True)
class Http:
    """The HTTP server of the master: `/api/v1/…`, `/metrics`, `/healthz`."""

    host: str = setting("127.0.0.1", "The address to listen on.", pattern=(r"\S+", "a host name or an IP address"))
    port: int = setting(9750, "The port to listen on; 0: any free one, see `kctl status`.", minimum=0, maximum=65535)


@dataclass(frozen=True, kw_only=True)
class Log:
    """What is written to the log files."""

    level: str = setting("INFO", "The least level that is written.", choices=("DEBUG", "INFO", "WARNING", "ERROR"))


SECTIONS: dict[str, type] = {
    "fleet": Fleet,
    "kafka": Kafka,
    "workers": Workers,
    "spark": Spark,
    "storage": Storage,
    "collect": Collect,
    "http": Http,
    "log": Log,
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """A checked configuration. `sources` tells for each `section.key` where its value came from:
    `default`, `file`, the name of an environment variable, or `flag`."""

    path: Path
    fleet: Fleet
    kafka: Kafka
    workers: Workers
    spark: Spark
    storage: Storage
    collect: Collect
    http: Http
    log: Log
    sources: Mapping[str, str] = field(default_factory=dict)
