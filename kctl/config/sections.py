"""The one table of settings: each field is a key, with type, default, unit, allowed values and a sentence.

`load.py` reads it to check a file, `reference.py` to write docs/configuration.md; nothing else declares a setting.
"""

# ruff: noqa: RUF009 - setting() returns dataclasses.field(), so nothing is shared between instances

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kctl_agent.storage.kinds import KINDS, MODES, Kind

__all__ = [
    "SECTIONS",
    "Cluster",
    "Collect",
    "Config",
    "Context",
    "Exporter",
    "Fleet",
    "Http",
    "Kafka",
    "Log",
    "Security",
    "Sinkers",
    "Spark",
    "Status",
    "Storage",
    "Workers",
]

NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
TOPIC = r"[A-Za-z0-9._-]{1,249}"
"""Kafka's own rule (org.apache.kafka.common.internals.Topic)."""
SERVER = r"(\[[0-9A-Fa-f:]+\]|[^\s,:\[\]]+):\d{1,5}"
SERVERS = f"{SERVER}(,{SERVER})*"
REDIS_URL = r"(rediss?|unix)://\S+"
AT_LEAST = (r"[1-9]\d*[kmgtKMGT]", "a number and a unit, such as `900k` or `2m`")
SIZE = (r"|[1-9]\d*[kmgtKMGT]", "a number and a unit, such as `900m` or `2g`")
NAMESPACE = r"[^\s{}]{1,249}"
"""Braces are the hash tag of the keys."""
REQUIRED = object()
PATTERN = (r"/.+/|[^/].*|/", "a glob, or a regular expression between slashes")


def size_bytes(text: str) -> int | None:
    """`512m` -> 536870912; None for the empty text."""
    return int(text[:-1]) << {"k": 10, "m": 20, "g": 30, "t": 40}[text[-1].lower()] if text else None


def setting(
    default: object,
    sentence: str,
    *,
    unit: str | None = None,
    choices: tuple[str, ...] | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    pattern: tuple[str, str] | None = None,
    is_secret: bool = False,
) -> Any:
    """Declare one setting; `pattern` is a regular expression that the text, or each item of a list, must match in full,
    and the words in which an error describes it. What may hold a password `is_secret` and never shown as it is."""
    metadata = {
        "sentence": sentence,
        "unit": unit,
        "choices": choices,
        "minimum": minimum,
        "maximum": maximum,
        "pattern": pattern,
        "required": default is REQUIRED,
        "is_secret": is_secret,
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
    data_dir: Path = setting(Path("data"), "What must survive a restart, and scratch folders; of one master at a time.")
    log_dir: Path = setting(Path("logs"), "One log file per process.")


@dataclass(frozen=True, kw_only=True)
class Security:
    """TLS and SASL towards brokers. Paths are relative to the configuration file."""

    security_protocol: str = setting(
        "PLAINTEXT",
        "Whether TLS (`SSL`) and SASL are spoken, in Kafka's own words.",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    tls_ca_file: str = setting("", "Certificates (PEM) that the broker's is checked with; empty: the system's.")
    tls_certificate_file: str = setting("", "Our own certificate (PEM), where the broker asks for one.")
    tls_key_file: str = setting("", "Its private key (PEM).")
    tls_key_password_file: str = setting("", "A file that holds the password of that key.")
    tls_check_hostname: bool = setting(True, "Whether the broker's certificate must name the host that was asked.")
    sasl_mechanism: str = setting(
        "SCRAM-SHA-512",
        "How kctl proves its identity.",
        choices=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    )
    sasl_username: str = setting("", "The name for `PLAIN` and `SCRAM-…`.")
    sasl_password_file: str = setting("", "A file that holds its password; empty: the variable `KCTL_SASL_PASSWORD`.")
    oauth_token_file: str = setting("", "A file that holds the token of `OAUTHBEARER`; read at each authentication.")


@dataclass(frozen=True, kw_only=True)
class _Group:
    """What `[kafka]` sets before TLS and SASL."""

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
        "How often a worker sends a heartbeat to the group; less than the session timeout.",
        unit="seconds",
        minimum=0.1,
        maximum=600.0,
    )
    max_poll_interval_seconds: float = setting(
        60.0,
        "A worker whose main thread does not poll the group for so long hangs, though its agent answers: it leaves the "
        "group, its stacks are written to its log, it is killed and started again. In a rebalance the others wait for "
        "a member at most so long. More than `workers.revoke_timeout_seconds`.",
        unit="seconds",
        minimum=1.0,
        maximum=86_400.0,
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
class Kafka(Security, _Group):
    """The brokers, the consumer group and the topics. TLS and SASL are spoken by workers, master and `kctl kafka`."""


@dataclass(frozen=True, kw_only=True)
class Workers:
    """How many workers, what a batch is, and how they are started, stopped and started again."""

    count: int = setting(1, "How many workers the master runs.", minimum=0, maximum=1000)
    engine: str = setting(
        "shared",
        "Where their queries run: in one Spark driver that all share, a process of its own named `engine`, or each in "
        "its own.",
        choices=("shared", "own"),
    )
    transform: str = setting(
        "",
        "A stateless DataFrame -> DataFrame function, `module:function`, that keeps Kafka's coordinates "
        "(docs/transform.md); empty: none.",
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
    on_fatal: str = setting(
        "keep",
        "When a worker cannot start as it is configured (`fatal`): keep the others running, or end the fleet "
        "with exit code 1, as a container wants it.",
        choices=("keep", "exit"),
    )
    ping_interval_seconds: float = setting(
        1.0,
        "How often a running worker's agent is asked whether it lives.",
        unit="seconds",
        minimum=0.05,
        maximum=600.0,
    )
    ping_timeout_seconds: float = setting(
        10.0,
        "A worker whose agent has not answered for so long hangs: its stacks are written to its log, it is killed and "
        "started again.",
        unit="seconds",
        minimum=0.1,
        maximum=3600.0,
    )
    memory_soft: str = setting(
        "",
        "A worker whose processes (its JVM included; what forked ones share counts once) take more than this, "
        "`memory_breaches` times in a row, is asked to leave and started again; empty: no limit. Not applied when it "
        "lies below what the worker takes after its start.",
        pattern=SIZE,
    )
    memory_hard: str = setting(
        "", "A worker that takes more than this is killed and started again; empty: no limit.", pattern=SIZE
    )
    memory_breaches: int = setting(3, "So many measurements in a row above `memory_soft`.", minimum=1)
    memory_interval_seconds: float = setting(
        2.0, "How often memory is measured.", unit="seconds", minimum=0.1, maximum=3600.0
    )
    stalled_seconds: float = setting(
        600.0,
        "A worker that has messages to read, and for so long neither finishes a batch nor stores anything of the one "
        "that runs, is started again; 0: never. Longer than the longest call of a handler with `storage.mode = "
        '"directly"`. Also a process that has not begun its work so long after its start, such as an engine whose JVM '
        "hangs, or a handler that cannot be opened.",
        unit="seconds",
        minimum=0.0,
    )


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The process `engine`, where `workers.engine` is `shared`. It is started, stopped and started again as `[workers]`
    sets it; its memory is that of its JVM and of the executors' Pythons."""

    heap: str = setting(
        "",
        "The heap of its JVM; empty: `spark.driver_memory`, and a quarter of it for each worker beyond the first.",
        pattern=(r"|[1-9]\d*[kmgtKMGT]", "a number and a unit, such as `512m` or `2g`"),
    )
    memory_soft: str = setting(
        "",
        "As `workers.memory_soft`, of the engine. Workers go on with the next one, and stay members of their group.",
        pattern=SIZE,
    )
    memory_hard: str = setting("", "As `workers.memory_hard`, of the engine.", pattern=SIZE)


@dataclass(frozen=True, kw_only=True)
class Spark:
    """The Spark driver of each worker, or of the engine that they share."""

    master: str = setting(
        "local[2]",
        "Spark's master URL: `local[k]`, `spark://…`, `k8s://…` or `yarn`. With `local[k]` an engine runs k tasks at a "
        "time for each worker.",
    )
    driver_memory: str = setting(
        "512m",
        "The heap of each driver's JVM; of an engine's see `engine.heap`.",
        pattern=(r"[1-9]\d*[kmgtKMGT]", "a number and a unit, such as `512m` or `2g`"),
    )
    jars: tuple[Path, ...] = setting(
        (), "Jars to use instead of the locked connector jars, which are fetched when this is empty."
    )
    conf: Mapping[str, str] = setting(
        {},
        "Any further Spark properties, as they are. They reach the JVM by a file that this user alone can read, and "
        "`kctl config show` hides those that speak of a secret.",
        is_secret=True,
    )
    auth_secret_file: str = setting(
        "",
        "A file that holds the secret by which a Spark cluster and its applications know each other; empty: the "
        "variable `KCTL_CLUSTER_SECRET`, if it is set. With it `spark.authenticate` and `spark.network.crypto.enabled` "
        "are on. `spark://…` needs one, or `spark.authenticate` in `conf`; others draw their own.",
    )


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where fetched messages wait for the handler."""

    mode: str = setting(
        "file",
        "One SQLite file; a Redis; none: the handler runs inside the batch; or a table that batches become rows of, "
        "without sinkers (docs/storage.md).",
        choices=MODES,
    )
    path: Path = setting(
        Path("data/storage.sqlite"),
        "The SQLite file, with mode `directly` for stored offsets and dead letters; all workers share it. Not on NFS. "
        "By default it is `storage.sqlite` in `fleet.data_dir`.",
    )
    url: str = setting(
        "redis://127.0.0.1:6379/0",
        "The Redis of mode `redis`: `redis://user@host:port/database`, `rediss://…` with TLS, `unix:///path?db=0`.",
        pattern=(REDIS_URL, "a URL that begins with `redis://`, `rediss://` or `unix://`"),
        is_secret=True,
    )
    password_file: str = setting("", "A file that holds the password of the Redis, so that it is not in `url`.")
    namespace: str = setting(
        "",
        "Under which name messages are kept in the Redis; empty: that of the consumer group.",
        pattern=(f"({NAMESPACE})?", "letters, digits and other signs but blanks and braces"),
    )
    format: str = setting(
        "delta",
        "The format of the table of mode `lake`.",
        choices=("delta",),
    )
    uri: str = setting(
        "",
        "The table of mode `lake`, a folder such as `file:///srv/lake/orders`, or `s3://bucket/orders`; made "
        "with the first batch.",
        pattern=(
            r"|file:///[^\s?#]+|s3://[a-z0-9][a-z0-9.-]+[a-z0-9](/[^\s?#%\[\]^|\\/]+)+",
            "a URI of an absolute path that begins with `file:///` (`?` and `#` are written as %3F and %23), or "
            "`s3://BUCKET/PREFIX`",
        ),
    )
    endpoint: str = setting(
        "",
        "The URL of the server that has the bucket of `uri`; empty: that in AWS_ENDPOINT_URL, or AWS itself.",
        pattern=(r"|https?://[^\s/?#@]+", "`https://host` or `http://host:port`"),
    )
    region: str = setting(
        "", "The region of the bucket of `uri`; empty: that in AWS_REGION or AWS_DEFAULT_REGION, or `us-east-1`."
    )
    credentials_file: str = setting(
        "",
        "A file with `aws_access_key_id`, `aws_secret_access_key` and maybe `aws_session_token` in its profile "
        "`default`, for the bucket of `uri`; empty: what AWS_ACCESS_KEY_ID and its kind have, or the role of the "
        "machine.",
    )
    partition_by: tuple[str, ...] = setting(
        (), "Columns by which the table of mode `lake` is partitioned, by its rows' values.", pattern=(r"\S+", "a name")
    )
    merge_schema: bool = setting(
        False,
        "Whether columns that the transform makes and the table of mode `lake` does not have are added to the table; "
        "else the workers refuse to start.",
    )
    target_file_bytes: str = setting(
        "128m",
        "How large a compaction makes the files of the table of mode `lake`; those below half of it count as small.",
        pattern=AT_LEAST,
    )
    upkeep: bool = setting(
        True,
        "Whether the master has the table of mode `lake` looked after: small files are compacted at quiet times, and "
        "once a day files are removed that no version of the last seven days has.",
    )
    block_messages: int = setting(500, "The most messages of one block.", unit="messages", minimum=1, maximum=100_000)
    block_bytes: str = setting(
        "1m",
        "The most bytes of messages (keys, values, headers, before compression) of one block; a larger message has one "
        "for itself.",
        pattern=AT_LEAST,
    )
    compression: str = setting(
        "lz4",
        "How blocks are compressed. JSON takes a quarter of its room with lz4 and a sixth with zstd, for half as much"
        " processor time again.",
        choices=("none", "snappy", "lz4", "zstd"),
    )
    on_lost_offsets: str = setting(
        "stop",
        "When the group has committed offsets with this storage and it does not know the partition any more (it was "
        "emptied or replaced): `stop` with the reason, or `continue` at the committed offset.",
        choices=("stop", "continue"),
    )
    on_other_storage: str = setting(
        "stop",
        "When the storage belongs to another group or cluster, or the group's offsets were committed with another "
        "storage: `stop` with both names, or `take_over`: go on at the committed offset, with this storage.",
        choices=("stop", "take_over"),
    )
    limit: int = setting(
        0, "With so many messages waiting the workers take no new batch; 0: no limit.", unit="messages", minimum=0
    )
    limit_bytes: str = setting(
        "",
        "With so many bytes in the storage, as they are stored and dead letters included, the workers take no new "
        "batch; empty: no limit.",
        pattern=SIZE,
    )
    dead_limit: int = setting(
        100_000,
        "With so many dead letters the workers take no new batch, until some are requeued or cleared; none is ever "
        "dropped for it. 0: no limit.",
        unit="messages",
        minimum=0,
    )
    dead_expire_seconds: float = setting(
        0.0,
        "Dead letters are removed for good, which is logged, when they are so old; 0: never.",
        unit="seconds",
        minimum=0.0,
    )
    min_free: str = setting(
        "512m",
        "With less space left on the disk of `path` the workers take no new batch, so that sinkers can still work on "
        "what is stored; empty: the disk is not watched.",
        pattern=SIZE,
    )

    @property
    def kind(self) -> Kind:
        """What such a storage can do."""
        return KINDS[self.mode]


@dataclass(frozen=True, kw_only=True)
class Sinkers:
    """How many sinkers, the handler they give messages to, and how often and how long it may try. They are started,
    stopped and started again as `[workers]` sets it."""

    count: int = setting(0, "How many sinkers the master runs.", minimum=0, maximum=1000)
    handler: str = setting(
        "",
        "What is called with messages, `package.module:function`; imported from the folder of this file, or installed. "
        "See handlers.md.",
        pattern=(r"|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "`package.module:function`"),
    )
    batch_size: int = setting(
        500, "The most messages of one call of the handler.", unit="messages", minimum=1, maximum=100_000
    )
    batch_bytes: str = setting(
        "16m",
        "The most bytes, as they are stored, that a sinker takes out of the storage at a time; one block at least.",
        pattern=AT_LEAST,
    )
    batch_wait_seconds: float = setting(
        0.0,
        "How long to wait for a batch to fill up after its first message; 0: not at all.",
        unit="seconds",
        minimum=0.0,
        maximum=3600.0,
    )
    lease_seconds: float = setting(
        60.0,
        "A message that a sinker has taken and neither settled nor renewed for so long is given to another. Sinkers "
        "renew at a third of it, however long the handler takes.",
        unit="seconds",
        minimum=1.0,
    )
    max_tries: int = setting(
        5, "A message that was handed out so often and not acknowledged becomes a dead letter.", minimum=1
    )
    retry_backoff_seconds: float = setting(
        1.0,
        "The wait before a message is tried again; doubles with each try, up to an hour.",
        unit="seconds",
        minimum=0.0,
    )
    handler_timeout_seconds: float = setting(
        300.0,
        "A call of the handler that takes longer has failed; unless the handler is `async`, its sinker is started "
        "again.",
        unit="seconds",
        minimum=0.05,
    )
    ordered: bool = setting(
        False,
        "Keep the later messages of a partition behind one that has failed, until it is acknowledged or a dead letter.",
    )


@dataclass(frozen=True, kw_only=True)
class Collect:
    """How the master collects its snapshots."""

    interval_seconds: float = setting(
        1.0, "How often agents and brokers are asked.", unit="seconds", minimum=0.1, maximum=3600.0
    )
    timeout_seconds: float = setting(
        2.0,
        "An agent that has not answered by then is reported as missing.",
        unit="seconds",
        minimum=0.05,
        maximum=600.0,
    )


@dataclass(frozen=True, kw_only=True)
class Status:
    """By which measures a partition is ok, warned of, stalled or stopped; see status.md."""

    window_seconds: float = setting(
        60.0,
        "The time over which a partition is judged; also the least silence, with messages waiting, that is no longer "
        "normal. With long batches it is longer by itself.",
        unit="seconds",
        minimum=1.0,
        maximum=86_400.0,
    )
    hold_seconds: float = setting(
        5.0, "A status that gets better is reported only after it has lasted so long.", unit="seconds", minimum=0.0
    )
    batch_limit_seconds: float = setting(
        600.0, "A batch that runs for longer no longer explains why nothing is committed.", unit="seconds", minimum=1.0
    )
    allowed_lag: tuple[str, ...] = setting(
        (),
        'Messages that may be left over, by the name of the group: `["payments-*=1"]`; the first pattern that fits '
        "counts. Transactions leave their markers.",
        pattern=(r".+=\d{1,18}", "`PATTERN=MESSAGES`, as in `payments-*=1`"),
    )


@dataclass(frozen=True, kw_only=True)
class Exporter:
    """Every consumer group of one or more clusters, with `kctl exporter`, or of the fleet's own cluster (exporter.md).
    A pattern is a glob, such as `payments-*`, or a regular expression between slashes, such as `/payments-(eu|us)/`; it
    must fit the whole name."""

    all_groups: bool = setting(
        False,
        "Whether a fleet's master collects every other group of its cluster too, beside the fleet's own, with all that "
        "follows here. `kctl exporter` always does.",
    )
    interval_seconds: float = setting(
        10.0, "How often the groups of a cluster are polled.", unit="seconds", minimum=0.1, maximum=3600.0
    )
    timeout_seconds: float = setting(
        5.0,
        "A broker that has not answered a request by then is left out of that poll.",
        unit="seconds",
        minimum=0.05,
        maximum=600.0,
    )
    stale_after_seconds: float = setting(
        60.0,
        "What a broker reported last is given for so long, with its age; then its series end.",
        unit="seconds",
        minimum=1.0,
    )
    groups: tuple[str, ...] = setting(("*",), "Patterns of the groups that are collected.", pattern=PATTERN)
    groups_except: tuple[str, ...] = setting((), "Patterns of those among them that are not.", pattern=PATTERN)
    topics: tuple[str, ...] = setting(("*",), "Patterns of the topics that are collected.", pattern=PATTERN)
    topics_except: tuple[str, ...] = setting((), "Patterns of those among them that are not.", pattern=PATTERN)
    without_partitions: tuple[str, ...] = setting(
        (),
        "Patterns of groups of which no partition has series of its own: those of topics and of the group stay.",
        pattern=PATTERN,
    )
    without_topics: tuple[str, ...] = setting(
        (), "Patterns of groups of which no topic has series of its own either.", pattern=PATTERN
    )
    max_partitions: int = setting(
        0,
        "With more partitions of all groups of a cluster than this, those of the groups that have the most have no "
        "series of their own, as few groups as will do; `kctl_cluster_cut_groups` has how many. 0: no limit.",
        unit="partitions",
        minimum=0,
    )
    compatible_names: tuple[str, ...] = setting(
        (),
        "Values under the names of other exporters too, for dashboards that were made for them; exporter.md has which.",
        pattern=(r"kafka_exporter|kminion", "`kafka_exporter` or `kminion`"),
    )
    read_committed: tuple[str, ...] = setting(
        (),
        "Patterns of groups that read committed records alone: their lag is counted to the last stable offset, so an "
        "open transaction is no lag.",
        pattern=PATTERN,
    )


@dataclass(frozen=True, kw_only=True)
class Http:
    """The HTTP server of the master: the page, `/api/v1/…`, `/metrics`, `/healthz`, `/readyz` (http.md)."""

    host: str = setting(
        "127.0.0.1",
        "The IP address to listen on, or `localhost`. One that is not of this host alone demands a token, and TLS or "
        "`insecure`.",
        pattern=(r"\S+", "a host name or an IP address"),
    )
    port: int = setting(
        9750,
        "The port to listen on, by default 9751 for `kctl exporter`; 0: any free one, see `kctl status`.",
        minimum=0,
        maximum=65535,
    )
    token_file: str = setting(
        "",
        "A file that holds the bearer token, of at least 16 characters, or two while it is rotated, each on a line, "
        "also as `name: token`. What changes something needs it, and beyond this host everything.",
    )
    read_token_file: str = setting(
        "",
        "A file like `token_file`, for tokens that may only read, such as that of Prometheus. Where it is set, reading "
        "needs a token on loopback too, where it else needs none of the fleet's user.",
    )
    tls_certificate: str = setting("", "A PEM file with the certificate and its chain; with it HTTPS is served.")
    tls_key: str = setting("", "The PEM file of its key, if that is not in the same file.")
    insecure: bool = setting(
        False, "Serve beyond this host without TLS: tokens can be read on the way. For a proxy or mesh that has TLS."
    )
    allowed_hosts: tuple[str, ...] = setting(
        (), "Further names by which this server may be called without a token, such as that of a proxy on this host."
    )


@dataclass(frozen=True, kw_only=True)
class Log:
    """What is written to the log files."""

    level: str = setting("INFO", "The least level that is written.", choices=("DEBUG", "INFO", "WARNING", "ERROR"))


@dataclass(frozen=True, kw_only=True)
class _Servers:
    """What a context sets before TLS and SASL."""

    bootstrap_servers: str = setting(
        REQUIRED,
        "The brokers to ask first, as `host:port`, separated by commas.",
        pattern=(SERVERS, "`host:port`, several separated by commas"),
    )


@dataclass(frozen=True, kw_only=True)
class Context(Security, _Servers):
    """A cluster for `kctl kafka --context NAME`, with TLS and SASL; any number of them, each under its own name. Fleets
    do not read them. A file may hold nothing else."""


@dataclass(frozen=True, kw_only=True)
class Cluster(Security, _Servers):
    """A cluster for `kctl exporter`, with TLS and SASL; any number of them, each under its own name, which is the label
    `cluster` of its metrics. Fleets do not read them. A file may hold nothing else."""


SECTIONS: dict[str, type] = {
    "fleet": Fleet,
    "kafka": Kafka,
    "workers": Workers,
    "engine": Engine,
    "spark": Spark,
    "storage": Storage,
    "sinkers": Sinkers,
    "collect": Collect,
    "status": Status,
    "exporter": Exporter,
    "http": Http,
    "log": Log,
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """A checked configuration. `sources` maps each `section.key` to where its value came from:
    `default`, `file`, the name of an environment variable, or `flag`."""

    path: Path
    fleet: Fleet
    kafka: Kafka
    workers: Workers
    engine: Engine
    spark: Spark
    storage: Storage
    sinkers: Sinkers
    collect: Collect
    status: Status
    exporter: Exporter
    http: Http
    log: Log
    sources: Mapping[str, str] = field(default_factory=dict)
