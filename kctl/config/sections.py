"""The sections of kctl.toml: each field is a key, with its type and bounds, its default, and a sentence below it.

Nothing else declares a setting: `load` checks a file by it, and docs/configuration.md and the JSON Schema are made of
it. When a change takes effect stands in the type too, where it is another than the section's (`effects`).
"""

# Without `from __future__ import annotations`: a field's type is a type, and not a text that has to be evaluated.

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from kctl.config.clusters import CheckpointSection, SecuritySection
from kctl.config.forms import (
    FLEET,
    MESSAGES,
    NAME,
    NEXT_START,
    NOW,
    PARTITIONS,
    RECORDS,
    SECRET,
    Form,
    Name,
    Pattern,
    RedisUrl,
    Seconds,
    Section,
    Servers,
    Size,
    SomeSize,
    Topic,
    number,
)
from kctl_agent.storage.kinds import KINDS, MODES, Kind


@dataclass(frozen=True, kw_only=True)
class FleetSection(Section):
    """The fleet's name and folders. Relative paths are relative to the configuration file."""

    name: Name = "kctl"
    """The name under which the fleet is listed when several run."""
    run_dir: Path = Path("run")
    """Sockets and `master.json`; created with mode 0700, for this user alone."""
    data_dir: Path = Path("data")
    """The folder of what must survive a restart, and of scratch folders; of one master at a time."""
    log_dir: Path = Path("logs")
    """One log file per process."""


@dataclass(frozen=True, kw_only=True)
class _Group(Section):
    """The settings of `[kafka]` before TLS and SASL."""

    cluster: str = "default"
    """A name for the Kafka cluster; the label `cluster` of every metric."""
    bootstrap_servers: Servers
    """The brokers to ask first, as `host:port`, separated by commas."""
    group: Annotated[str, Form(r"\S.*", "a name")]
    """The consumer group that the workers join."""
    topics: Annotated[tuple[Topic, ...], Meta(min_length=1)]
    """The topics to read; each must exist when the fleet starts."""
    auto_offset_reset: Annotated[Literal["earliest", "latest"], NEXT_START] = "earliest"
    """Where to begin when the group has committed nothing."""
    assignor: Annotated[Literal["range", "roundrobin", "sticky", "cooperative-sticky"], NEXT_START] = (
        "cooperative-sticky"
    )
    """How partitions are shared out among the members."""
    session_timeout_seconds: Annotated[float, number(1, 1800), NEXT_START] = 10.0
    """A worker that is silent for so long loses its partitions."""
    heartbeat_interval_seconds: Annotated[float, number(0.1, 600), NEXT_START] = 1.0
    """How often a worker sends a heartbeat to the group; less than the session timeout."""
    max_poll_interval_seconds: Annotated[float, number(1, 86_400), NEXT_START] = 60.0
    """A worker whose main thread does not poll the group for so long hangs, though its agent answers: it leaves the
    group, its stacks are written to its log, it is killed and started again. In a rebalance the others wait for a
    member at most so long. More than `workers.revoke_timeout_seconds`."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """Whether records of open and aborted transactions are read; with `read_committed` the end of a partition is its
    last stable offset."""
    static_membership: Annotated[bool, NEXT_START] = False
    """Workers keep their partitions over a quick restart. `group.instance.id` is the name of the fleet and of the
    worker; with `[hosts]` the host's name stands between them."""


@dataclass(frozen=True, kw_only=True)
class KafkaSection(SecuritySection, _Group):
    """The brokers, the consumer group and the topics. TLS and SASL are spoken by workers, master and `kctl kafka`."""


@dataclass(frozen=True, kw_only=True)
class WorkersSection(Section):
    """How many workers, what a batch is, and how they are started, stopped and started again."""

    effect: ClassVar = NEXT_START

    count: Annotated[int, number(0, 1000), NOW] = 1
    """How many workers the master runs."""
    engine: Annotated[Literal["shared", "own"], FLEET] = "shared"
    """Where their queries run: in one Spark driver that all share, a process of its own named `engine`, or each in its
    own."""
    transform: Annotated[str, Form(r"|[A-Za-z_][\w.]*:[A-Za-z_]\w*", "`module:function`")] = ""
    """A stateless DataFrame -> DataFrame function, `module:function`, that keeps Kafka's coordinates
    (docs/transform.md); empty: none."""
    max_records_per_batch: Annotated[int, number(1), RECORDS] = 100_000
    """The most records of one batch."""
    trigger_seconds: Seconds = 0.0
    """The longest wait for a full batch (`max_records_per_batch`); 0: what is there is a batch. With `storage.mode`
    `lake` the default is 20, because each batch leaves files and an entry of the log."""
    on_data_loss: Literal["continue", "stop"] = "continue"
    """What to do when retention removed records before they were read; it is counted and reported either way."""
    on_unreadable: Literal["stop", "dead_letter"] = "stop"
    """What to do at a record that Spark or the transform cannot read: `stop` its partition there, or make it a dead
    letter with its bytes and the error, and go on (docs/transform.md)."""
    revoke_timeout_seconds: Seconds = 15.0
    """How long a running batch may take to finish when its partitions are revoked; then it is abandoned."""
    start_timeout_seconds: Annotated[float, number(1), NOW] = 60.0
    """A worker must answer a ping within this time after its start."""
    stop_timeout_seconds: Annotated[Seconds, NOW] = 30.0
    """How long a worker may take to stop before it is killed."""
    backoff_min_seconds: Annotated[Seconds, NOW] = 1.0
    """The wait before a worker that died is started again; doubles each time."""
    backoff_max_seconds: Annotated[Seconds, NOW] = 60.0
    """The longest wait before a worker that died is started again."""
    stable_seconds: Annotated[Seconds, NOW] = 30.0
    """A worker that has run for so long is stable: the next wait is the shortest again."""
    on_fatal: Annotated[Literal["keep", "exit"], NOW] = "keep"
    """When a worker cannot start as it is configured (`fatal`): keep the others running, or end the fleet with exit
    code 1, as a container wants it."""
    ping_interval_seconds: Annotated[float, number(0.05, 600), NOW] = 1.0
    """How often a running worker's agent is asked whether it lives."""
    ping_timeout_seconds: Annotated[float, number(0.1, 3600), NOW] = 10.0
    """A worker whose agent has not answered for so long hangs: its stacks are written to its log, it is killed and
    started again."""
    memory_soft: Annotated[Size, NOW] = ""
    """A worker whose processes (its JVM included; what forked ones share counts once) take more than this,
    `memory_breaches` times in a row, is asked to leave and started again; empty: no limit. Not applied when it lies
    below what the worker takes after its start."""
    memory_hard: Annotated[Size, NOW] = ""
    """A worker that takes more than this is killed and started again; empty: no limit."""
    memory_breaches: Annotated[int, number(1), NOW] = 3
    """How many measurements in a row have to be above `memory_soft`."""
    memory_interval_seconds: Annotated[float, number(0.1, 3600), NOW] = 2.0
    """How often memory is measured."""
    stalled_seconds: Annotated[Seconds, NOW] = 600.0
    """A worker that has messages to read, and for so long neither finishes a batch nor stores anything of the one that
    runs, is started again; 0: never. Longer than the longest call of a handler with `storage.mode = "directly"`. Also a
    process that has not begun its work so long after its start, such as an engine whose JVM hangs, or a handler that
    cannot be opened."""


@dataclass(frozen=True, kw_only=True)
class EngineSection(Section):
    """The process `engine`, where `workers.engine` is `shared`. It is started, stopped and started again as `[workers]`
    sets it; its memory is that of its JVM and of the executors' Pythons."""

    effect: ClassVar = NEXT_START

    heap: Size = ""
    """Heap of the engine's JVM; empty: `spark.driver_memory`, and a quarter of it for each worker beyond the first."""
    memory_soft: Annotated[Size, NOW] = ""
    """The limit `workers.memory_soft`, for the engine. Workers go on with the next one, and stay group members."""
    memory_hard: Annotated[Size, NOW] = ""
    """The limit `workers.memory_hard`, for the engine."""


@dataclass(frozen=True, kw_only=True)
class SparkSection(Section):
    """The Spark driver of each worker, or of the engine that they share."""

    effect: ClassVar = NEXT_START

    master: str = "local[2]"
    """Spark's master URL: `local[k]`, `spark://…`, `k8s://…` or `yarn`. With `local[k]` an engine runs k tasks at a
    time for each worker."""
    driver_memory: SomeSize = "512m"
    """The heap of each driver's JVM; of an engine's see `engine.heap`."""
    jars: Annotated[tuple[Path, ...], FLEET] = ()
    """Jars to use instead of the locked connector jars, which are fetched when this is empty."""
    conf: Annotated[Mapping[str, str], SECRET] = field(default_factory=dict)
    """Any further Spark properties, as they are. They reach the JVM by a file that this user alone can read, and `kctl
    config show` hides those that speak of a secret."""
    auth_secret_file: str = ""
    """A file that holds the secret by which a Spark cluster and its applications know each other; empty: the variable
    `KCTL_CLUSTER_SECRET`, if it is set. With it `spark.authenticate` and `spark.network.crypto.enabled` are on.
    `spark://…` needs one, or `spark.authenticate` in `conf`; others draw their own."""


@dataclass(frozen=True, kw_only=True)
class StorageSection(Section):
    """Where fetched messages wait for the handler."""

    effect: ClassVar = NEXT_START

    mode: Literal[MODES] = "file"  # type: ignore[valid-type]  # a tuple of texts, which Literal takes apart
    """`file`: SQLite; `redis`; `directly`: the handler runs inside the batch; `lake`: batches become rows of a table,
    without sinkers (docs/storage.md)."""
    path: Path = Path("data/storage.sqlite")
    """The SQLite file, with mode `directly` for stored offsets and dead letters; all workers share it. Not on NFS. By
    default it is `storage.sqlite` in `fleet.data_dir`."""
    url: RedisUrl = "redis://127.0.0.1:6379/0"
    """The Redis of mode `redis`: `redis://user@host:port/database`, `rediss://…` with TLS, `unix:///path?db=0`."""
    password_file: str = ""
    """A file that holds the password of the Redis, so that it is not in `url`."""
    namespace: Annotated[str, Form(r"[^\s{}]{0,249}", "letters, digits and other signs but blanks and braces")] = ""
    """Under which name messages are kept in the Redis; empty: that of the consumer group."""
    format: Literal["delta"] = "delta"
    """The format of the table of mode `lake`."""
    uri: Annotated[
        str,
        Form(
            r"|file:///[^\s?#]+|s3://[a-z0-9][a-z0-9.-]+[a-z0-9](/[^\s?#%\[\]^|\\/]+)+",
            "a URI of an absolute path that begins with `file:///` (`?` and `#` are written as %3F and %23), "
            "or `s3://BUCKET/PREFIX`",
        ),
    ] = ""
    """The table of mode `lake`, a folder such as `file:///srv/lake/orders`, or `s3://bucket/orders`; made with the
    first batch."""
    endpoint: Annotated[str, Form(r"|https?://[^\s/?#@]+", "`https://host` or `http://host:port`")] = ""
    """The URL of the server that has the bucket of `uri`; empty: that in AWS_ENDPOINT_URL, or AWS itself."""
    region: str = ""
    """The region of the bucket of `uri`; empty: that in AWS_REGION or AWS_DEFAULT_REGION, or `us-east-1`."""
    credentials_file: str = ""
    """A file with `aws_access_key_id`, `aws_secret_access_key` and maybe `aws_session_token` in its profile `default`,
    for the bucket of `uri`; empty: what AWS_ACCESS_KEY_ID and its kind have, or the role of the machine."""
    partition_by: tuple[Annotated[str, Form(r"\S+", "a name")], ...] = ()
    """Columns by which the table of mode `lake` is partitioned, by its rows' values."""
    merge_schema: bool = False
    """Whether columns that the transform makes and the table of mode `lake` does not have are added to the table; else
    the workers refuse to start."""
    target_file_bytes: SomeSize = "128m"
    """How large a compaction makes the files of the table of mode `lake`; those below half of it count as small."""
    maintenance: Annotated[bool, NOW] = True
    """Whether the master has the table of mode `lake` looked after: small files are compacted at quiet times, and once
    a day files are removed that no version of the last seven days has."""
    block_messages: Annotated[int, number(1, 100_000), MESSAGES] = 500
    """The most messages of one block."""
    block_bytes: SomeSize = "1m"
    """The most bytes of messages (keys, values, headers, before compression) of one block; a larger message has one for
    itself."""
    compression: Literal["none", "snappy", "lz4", "zstd"] = "lz4"
    """How blocks are compressed. JSON takes a quarter of its room with lz4 and a sixth with zstd, for half as much
    processor time again."""
    on_lost_offsets: Literal["stop", "continue"] = "stop"
    """When the group has committed offsets with this storage and it does not know the partition any more (it was
    emptied or replaced): `stop` with the reason, or `continue` at the committed offset."""
    on_other_storage: Literal["stop", "take_over"] = "stop"
    """When the storage belongs to another group or cluster (`kctl storage migrate`), or the group's offsets were
    committed with another storage: `stop` with both names, or `take_over`: go on at the committed offset, with this
    storage."""
    limit: Annotated[int, number(0), MESSAGES] = 0
    """With so many messages waiting the workers take no new batch; 0: no limit."""
    limit_bytes: Size = ""
    """With so many bytes in the storage, as they are stored and dead letters included, the workers take no new batch;
    empty: no limit."""
    dead_limit: Annotated[int, number(0), MESSAGES] = 100_000
    """With so many dead letters the workers take no new batch, until some are requeued or cleared; none is ever dropped
    for it. 0: no limit."""
    dead_expire_seconds: Seconds = 0.0
    """Dead letters are removed for good, which is logged, when they are so old; 0: never. The maintenance of a table
    removes them once a day, in whole files."""
    min_free: Size = "512m"
    """With less space left on the disk of `path` or `uri`, or less than 1 % of its inodes, the workers take no new
    batch, so that sinkers can still work on what is stored; empty: the disk is not watched."""

    @property
    def kind(self) -> Kind:
        """What such a storage can do."""
        return KINDS[self.mode]


@dataclass(frozen=True, kw_only=True)
class SinkersSection(Section):
    """How many sinkers, the handler they give messages to, and how often and how long it may try. They are started,
    stopped and started again as `[workers]` sets it."""

    effect: ClassVar = NEXT_START

    count: Annotated[int, number(0, 1000), NOW] = 0
    """How many sinkers the master runs."""
    handler: Annotated[str, Form(r"|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "`package.module:function`")] = ""
    """The function or class that gets messages, `package.module:name`; imported from the folder of this file, or
    installed. See handlers.md."""
    batch_size: Annotated[int, number(1, 100_000), MESSAGES] = 500
    """The most messages of one call of the handler."""
    batch_bytes: SomeSize = "16m"
    """The most bytes, as they are stored, that a sinker takes out of the storage at a time; one block at least."""
    batch_wait_seconds: Annotated[float, number(0, 3600)] = 0.0
    """How long to wait for a batch to fill up after its first message; 0: not at all."""
    lease_seconds: Annotated[float, number(1)] = 60.0
    """A message that a sinker has taken and neither settled nor renewed for so long is given to another. Sinkers renew
    at a third of it, however long the handler takes."""
    max_tries: Annotated[int, number(1)] = 5
    """A message that was handed out so often and not acknowledged becomes a dead letter."""
    retry_backoff_seconds: Seconds = 1.0
    """The wait before a message is tried again; doubles with each try, up to an hour."""
    handler_timeout_seconds: Annotated[float, number(0.05)] = 300.0
    """A call of the handler that takes longer has failed; unless the handler is `async`, its sinker is started
    again."""
    ordered: bool = False
    """Keep the later messages of a partition behind one that has failed, until it is acknowledged or a dead letter."""


@dataclass(frozen=True, kw_only=True)
class CollectSection(Section):
    """How the master collects its snapshots."""

    interval_seconds: Annotated[float, number(0.1, 3600)] = 1.0
    """How often agents and brokers are asked."""
    timeout_seconds: Annotated[float, number(0.05, 600)] = 2.0
    """An agent that has not answered by then is reported as missing."""


@dataclass(frozen=True, kw_only=True)
class StatusSection(Section):
    """The measures by which a partition is ok, warned of, stalled or stopped; see status.md."""

    window_seconds: Annotated[float, number(1, 86_400)] = 60.0
    """The time over which a partition is judged; also the least silence, with messages waiting, that is no longer
    normal. With long batches it is longer by itself."""
    hold_seconds: Seconds = 5.0
    """A status that gets better is reported only after it has lasted so long."""
    batch_limit_seconds: Annotated[float, number(1)] = 600.0
    """A batch that runs for longer no longer explains why nothing is committed."""
    oldest_limit: Annotated[float, number(0)] = 0.0
    """The age of the oldest unhandled message, in seconds, above which a fleet is `degraded`, unless the age falls; 0:
    three usual cycles, at least 60. Of fleets alone."""
    allowed_lag: tuple[Annotated[str, Form(r".+=\d{1,18}", "`PATTERN=MESSAGES`, as in `payments-*=1`")], ...] = ()
    """Messages that may be left over, by the name of the group: `["payments-*=1"]`; the first pattern that fits counts.
    Transactions leave their markers."""


@dataclass(frozen=True, kw_only=True)
class ExporterSection(Section):
    """Every consumer group of one or more clusters, with `kctl exporter`, or of the fleet's own cluster (exporter.md).
    A pattern is a glob, such as `payments-*`, or a regular expression between slashes, such as `/payments-(eu|us)/`; it
    must fit the whole name."""

    effect: ClassVar = NOW

    all_groups: bool = False
    """Whether a fleet's master collects every other group of its cluster too, beside the fleet's own, with all that
    follows here. `kctl exporter` always does."""
    interval_seconds: Annotated[float, number(0.1, 3600)] = 10.0
    """How often the groups of a cluster are polled."""
    timeout_seconds: Annotated[float, number(0.05, 600)] = 5.0
    """A broker that has not answered a request by then is left out of that poll."""
    stale_after_seconds: Annotated[float, number(1)] = 60.0
    """What a broker reported last is given for so long, with its age; then its series end."""
    groups: tuple[Pattern, ...] = ("*",)
    """Patterns of the groups that are collected."""
    groups_except: tuple[Pattern, ...] = ()
    """Patterns of groups that are not collected, though they fit a pattern of `groups`."""
    topics: tuple[Pattern, ...] = ("*",)
    """Patterns of the topics that are collected."""
    topics_except: tuple[Pattern, ...] = ()
    """Patterns of topics that are not collected, though they fit a pattern of `topics`."""
    without_partitions: tuple[Pattern, ...] = ()
    """Patterns of groups of which no partition has series of its own: those of topics and of the group stay."""
    without_topics: tuple[Pattern, ...] = ()
    """Patterns of groups of which no topic has series of its own either."""
    max_partitions: Annotated[int, number(0), PARTITIONS] = 0
    """With more partitions of all groups of a cluster than this, those of the groups that have the most have no series
    of their own, as few groups as will do; `kctl_cluster_cut_groups` has how many. 0: no limit."""
    read_committed: tuple[Pattern, ...] = ()
    """Patterns of groups that read committed records alone: their lag is counted to the last stable offset, so an open
    transaction is no lag."""


@dataclass(frozen=True, kw_only=True)
class HttpSection(Section):
    """The HTTP server of the master: the page, `/api/v1/…`, `/metrics`, `/healthz`, `/readyz` (http.md)."""

    host: Annotated[str, Form(r"\S+", "a host name or an IP address")] = "127.0.0.1"
    """The IP address to listen on, or `localhost`. One that is not of this host alone demands a token, and TLS or
    `insecure`."""
    port: Annotated[int, number(0, 65535)] = 9750
    """The port to listen on, by default 9751 for `kctl exporter`; 0: any free one, see `kctl status`."""
    token_file: Annotated[str, NOW] = ""
    """A file that holds the bearer token, of at least 16 characters, or two while it is rotated, each on a line, also
    as `name: token`. What changes something needs it, and beyond this host everything."""
    read_token_file: Annotated[str, NOW] = ""
    """A file like `token_file`, for tokens that may only read, such as that of Prometheus. Where it is set, reading
    needs a token on loopback too, where it else needs none of the fleet's user."""
    tls_certificate: str = ""
    """A PEM file with the server's certificate and its chain; with it HTTPS is served."""
    tls_key: str = ""
    """The PEM file of the certificate's key, if that is not in the file of the certificate."""
    insecure: bool = False
    """Serve beyond this host without TLS: tokens can be read on the way. For a proxy or mesh that has TLS."""
    allowed_hosts: Annotated[tuple[str, ...], NOW] = ()
    """Further names by which this server may be called without a token, such as that of a proxy on this host."""


@dataclass(frozen=True, kw_only=True)
class HostsSection(Section):
    """Masters of the same fleet on other hosts, each with workers of the same consumer group: any of them answers for
    all (hosts.md)."""

    url: Annotated[
        str,
        Form(
            r"|https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[1-9]\d{0,4})?", "`https://host` or `https://host:port`"
        ),
    ] = ""
    """The address at which masters of other hosts reach this one, without a port at that of `http.port`; empty: the
    fleet runs on this host alone."""
    name: Annotated[str, Form(f"|{NAME}", "letters, digits, `.`, `_` or `-`")] = ""
    """The name of this host, of which each has its own; empty: what the system calls it."""
    group: str = ""
    """The consumer group in which the masters find each other; empty: `kafka.group` with `.kctl-masters`. The master
    needs the right to READ it, and nobody else should have that."""
    token_file: str = ""
    """A file with the token that is shown to other masters: one of their `http.read_token_file`."""
    operations_token_file: str = ""
    """A file with the token that is shown to them with an operation: one of their `http.token_file`; empty: none can be
    sent to another host."""
    ca_file: str = ""
    """A PEM file with the authority of the hosts' certificates: a token is sent to its servers alone, so it should be
    the fleet's own. Needed with `https://`."""
    allow_plain: bool = False
    """Whether masters that speak HTTP without TLS are asked, and shown the token."""
    local_storage: bool = False
    """Whether each host may have a storage of its own with mode `file`: messages that a lost host has stored are
    handled when it is back, and not before."""
    forget_seconds: Annotated[float, number(60)] = 259_200.0
    """How long a host that has gone is named as missing; `kctl forget-host` ends that."""

    @property
    def own_name(self) -> str:
        """The name of this host; empty if the fleet runs on one host."""
        return (self.name or socket.gethostname()) if self.url else ""


@dataclass(frozen=True, kw_only=True)
class LogSection(Section):
    """What is written to the log files."""

    level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], NOW] = "INFO"
    """The least level that is written."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A checked configuration: its sections in the order of the page of settings. `sources` maps each `section.key` to
    where its value came from: `default`, `file`, the name of an environment variable, or `flag`."""

    path: Path
    fleet: FleetSection
    kafka: KafkaSection
    workers: WorkersSection
    engine: EngineSection
    spark: SparkSection
    storage: StorageSection
    sinkers: SinkersSection
    collect: CollectSection
    status: StatusSection
    exporter: ExporterSection
    http: HttpSection
    hosts: HostsSection
    log: LogSection
    checkpoints: Mapping[str, CheckpointSection] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


SECTIONS: dict[str, type[Section]] = {
    each.name: each.type for each in fields(Config) if isinstance(each.type, type) and issubclass(each.type, Section)
}
