"""The sections of kctl.toml, for `load`, docs/configuration.md and the JSON Schema. Each field is a key with type,
bounds and default. The text below the field describes it."""

# Without `from __future__ import annotations`, so that a field's type is a type, not a text that must be evaluated.

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
    """The fleet's name and folders."""

    name: Name = "kctl"
    """The name of the fleet in lists of running fleets."""
    run_dir: Path = Path("run")
    """The folder of sockets and `master.json`. kctl creates it with mode 0700."""
    data_dir: Path = Path("data")
    """The folder for scratch files and for files that must survive a restart. Only one master may use it."""
    log_dir: Path = Path("logs")
    """The folder of log files, one for each process."""


@dataclass(frozen=True, kw_only=True)
class _Group(Section):
    cluster: str = "default"
    """A name for the Kafka cluster, used as the label `cluster` of every metric."""
    bootstrap_servers: Servers
    """The first brokers to contact, as `host:port`, separated by commas."""
    group: Annotated[str, Form(r"\S.*", "a name")]
    """The consumer group that the workers join."""
    topics: Annotated[tuple[Topic, ...], Meta(min_length=1)]
    """The topics to read. Each must exist when the fleet starts."""
    auto_offset_reset: Annotated[Literal["earliest", "latest"], NEXT_START] = "earliest"
    """Where to start if the group has never committed an offset."""
    assignor: Annotated[Literal["range", "roundrobin", "sticky", "cooperative-sticky"], NEXT_START] = (
        "cooperative-sticky"
    )
    """How the group assigns partitions to its members."""
    session_timeout_seconds: Annotated[float, number(1, 1800), NEXT_START] = 10.0
    """A worker loses its partitions if the group receives no heartbeat from it for this long."""
    heartbeat_interval_seconds: Annotated[float, number(0.1, 600), NEXT_START] = 1.0
    """How often a worker sends a heartbeat to the group. Must be less than `session_timeout_seconds`."""
    max_poll_interval_seconds: Annotated[float, number(1, 86_400), NEXT_START] = 60.0
    """If a worker's main thread does not poll the group for this long, the worker leaves the group. kctl writes the
    worker's stacks to its log, kills it and restarts it. A rebalance waits for a worker at most this long. Must exceed
    `workers.revoke_timeout_seconds`."""
    isolation_level: Literal["read_uncommitted", "read_committed"] = "read_uncommitted"
    """Whether to read records of open and aborted transactions. With `read_committed`, a partition ends at its last
    stable offset."""
    value_format: Literal["bytes", "avro", "json"] = "bytes"
    """How values are encoded. With `avro`, values have schema ids of [schema_registry], tables have typed columns, and
    handlers can read `message.decoded`. With `json`, kctl skips a schema id before the text (typed-messages.md)."""
    key_format: Literal["bytes", "avro", "json"] = "bytes"
    """How keys are encoded, for handlers and for display. A table keeps keys as bytes."""
    static_membership: Annotated[bool, NEXT_START] = False
    """Whether workers keep their partitions over a quick restart. Their `group.instance.id` consists of the names of
    fleet and worker, and with `[hosts]` also of the host's name."""


@dataclass(frozen=True, kw_only=True)
class KafkaSection(SecuritySection, _Group):
    """The brokers (with TLS and SASL), the consumer group and the topics, for workers, master and `kctl kafka`."""


@dataclass(frozen=True, kw_only=True)
class SchemaRegistrySection(Section):
    """The schema registry for `kafka.value_format` and `kafka.key_format`: any server with Confluent's API. kctl reads
    `token_file` or `basic_auth_file` for each request."""

    effect: ClassVar = NEXT_START

    url: Annotated[str, Form(r"|https?://[^\s?#@]+", "`https://host` or `http://host:port/path`")] = ""
    """The URL of the registry, such as `https://registry:8081`."""
    basic_auth_file: str = ""
    """A file with `USER:PASSWORD` or `KEY:SECRET`."""
    token_file: str = ""
    """A file with a bearer token. Do not combine it with `basic_auth_file`."""
    tls_ca_file: str = ""
    """CA certificates (PEM) to verify the registry. Empty means the system's."""
    tls_certificate_file: str = ""
    """kctl's own certificate (PEM), if the registry requires one."""
    tls_key_file: str = ""
    """The private key (PEM) of `tls_certificate_file`."""
    tls_key_password_file: str = ""
    """A file with the password of `tls_key_file`."""
    tls_check_hostname: bool = True
    """Whether the registry's certificate must contain the requested host name."""


@dataclass(frozen=True, kw_only=True)
class WorkersSection(Section):
    """How many workers run, and how kctl starts, stops and restarts them."""

    effect: ClassVar = NEXT_START

    count: Annotated[int, number(0, 1000), NOW] = 1
    """The number of workers."""
    engine: Annotated[Literal["shared", "own"], FLEET] = "shared"
    """With `shared`, one Spark driver (the process `engine`) runs the queries of all workers. With `own`, each worker
    has a driver."""
    transform: Annotated[str, Form(r"|[A-Za-z_][\w.]*:[A-Za-z_]\w*", "`module:function`")] = ""
    """A stateless function, `module:function`, that takes and returns a DataFrame. It must keep the columns `topic`,
    `partition` and `offset` (docs/transform.md)."""
    max_records_per_batch: Annotated[int, number(1), RECORDS] = 100_000
    """The maximum number of records in one batch."""
    trigger_seconds: Seconds = 0.0
    """The longest wait for a full batch (`max_records_per_batch`). 0 means no wait. With `storage.mode` `lake`, the
    default is 20, because each batch adds files to the table."""
    on_data_loss: Literal["continue", "stop"] = "continue"
    """What to do if retention has removed unread records: `continue` at the log's start, or `stop` the worker. kctl
    always counts and reports the loss."""
    on_unreadable: Literal["stop", "dead_letter"] = "stop"
    """What to do if Spark or the transform cannot read a record: `stop` its partition at this record, or make a
    `dead_letter` with its bytes and the error, and continue (docs/transform.md)."""
    revoke_timeout_seconds: Seconds = 15.0
    """How long a running batch has to finish when its partitions are revoked. After this time, the batch is
    abandoned."""
    start_timeout_seconds: Annotated[float, number(1), NOW] = 60.0
    """A worker must answer a ping within this time after its start."""
    stop_timeout_seconds: Annotated[Seconds, NOW] = 30.0
    """How long a worker may take to stop before it is killed."""
    backoff_min_seconds: Annotated[Seconds, NOW] = 1.0
    """The wait before a dead worker is restarted. It doubles each time."""
    backoff_max_seconds: Annotated[Seconds, NOW] = 60.0
    """The longest wait before a dead worker is restarted."""
    stable_seconds: Annotated[Seconds, NOW] = 30.0
    """After a worker has run for this long, its next restart waits only `backoff_min_seconds`."""
    on_fatal: Annotated[Literal["keep", "exit"], NOW] = "keep"
    """What to do if a worker cannot start with its configuration (`fatal`): `keep` the fleet running, or `exit` with
    exit code 1, for containers."""
    ping_interval_seconds: Annotated[float, number(0.05, 600), NOW] = 1.0
    """How often the master pings the agent of a running worker."""
    ping_timeout_seconds: Annotated[float, number(0.1, 3600), NOW] = 10.0
    """If a worker's agent does not answer for this long, kctl writes the worker's stacks to its log, kills it and
    restarts it."""
    memory_soft: Annotated[Size, NOW] = ""
    """The memory limit for all processes of a worker, including its JVM. Empty means no limit. After
    `memory_breaches` measurements in a row above the limit, kctl stops the worker gracefully and restarts it. kctl
    ignores a limit below what the worker uses after its start."""
    memory_hard: Annotated[Size, NOW] = ""
    """kctl kills and restarts a worker that uses more memory than this. Empty means no limit."""
    memory_breaches: Annotated[int, number(1), NOW] = 3
    """How many measurements in a row must be above `memory_soft`."""
    memory_interval_seconds: Annotated[float, number(0.1, 3600), NOW] = 2.0
    """How often kctl measures memory."""
    stalled_seconds: Annotated[Seconds, NOW] = 600.0
    """kctl restarts a worker that has messages to read, but for this long neither finishes a batch nor stores part of
    one. 0 means never. With `storage.mode` `directly`, this time must exceed the longest call of the handler. kctl also
    restarts any process that has not begun its work this long after its start, such as an engine whose JVM hangs."""


@dataclass(frozen=True, kw_only=True)
class EngineSection(Section):
    """The process `engine`, which runs all workers' queries if `workers.engine` is `shared`. `[workers]` also sets how
    kctl starts, stops and restarts the engine. Its memory limits cover its JVM and the executors' Python processes."""

    effect: ClassVar = NEXT_START

    heap: Size = ""
    """The heap of the engine's JVM. If empty, it is `spark.driver_memory`, plus a quarter of it for each worker beyond
    the first."""
    memory_soft: Annotated[Size, NOW] = ""
    """Like `workers.memory_soft`, for the engine. Workers stay in their group during the restart."""
    memory_hard: Annotated[Size, NOW] = ""
    """Like `workers.memory_hard`, for the engine."""


@dataclass(frozen=True, kw_only=True)
class SparkSection(Section):
    """The Spark driver of each worker, or of the engine that they share."""

    effect: ClassVar = NEXT_START

    master: str = "local[2]"
    """Spark's master URL: `local[k]`, `spark://…`, `k8s://…` or `yarn`. With `local[k]` an engine runs k tasks at a
    time for each worker."""
    driver_memory: SomeSize = "512m"
    """The heap of each driver's JVM. For a shared engine, see `engine.heap`."""
    jars: Annotated[tuple[Path, ...], FLEET] = ()
    """Jars to use instead of the locked connector jars. If empty, kctl fetches the locked jars."""
    conf: Annotated[Mapping[str, str], SECRET] = field(default_factory=dict)
    """Other Spark properties. kctl passes them unchanged to the JVM, in a private file. `kctl config show` hides
    secrets."""
    auth_secret_file: str = ""
    """A file with the secret that a Spark cluster and its applications share. If empty, kctl uses the variable
    `KCTL_CLUSTER_SECRET`. The secret turns on `spark.authenticate` and `spark.network.crypto.enabled`. `spark://…`
    needs this secret, or `spark.authenticate` in `conf`. For other masters, Spark generates a secret."""


@dataclass(frozen=True, kw_only=True)
class StorageSection(Section):
    """Where kctl stores messages, offsets and dead letters."""

    effect: ClassVar = NEXT_START

    mode: Literal[MODES] = "file"  # type: ignore[valid-type]  # a tuple of texts, which Literal takes apart
    """Where messages are stored: `file` in SQLite, `redis` in a Redis. With `directly`, the handler runs inside the
    batch. With `lake`, batches become rows of a table, without sinkers (docs/storage.md)."""
    path: Path = Path("data/storage.sqlite")
    """The SQLite file that all workers share. It must not be on NFS. With mode `directly`, it contains stored offsets
    and dead letters. The default is `storage.sqlite` in `fleet.data_dir`."""
    url: RedisUrl = "redis://127.0.0.1:6379/0"
    """The Redis of mode `redis`: `redis://user@host:port/database`, `rediss://…` with TLS, `unix:///path?db=0`."""
    password_file: str = ""
    """A file with the password of the Redis."""
    namespace: Annotated[str, Form(r"[^\s{}]{0,249}", "letters, digits and other signs but blanks and braces")] = ""
    """The name under which the Redis keeps messages. Empty means the consumer group."""
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
    """The location of the table of mode `lake`, such as `file:///srv/lake/orders` or `s3://bucket/orders`. The first
    batch creates the table."""
    endpoint: Annotated[str, Form(r"|https?://[^\s/?#@]+", "`https://host` or `http://host:port`")] = ""
    """The URL of an S3-compatible server other than AWS. If empty, kctl uses AWS_ENDPOINT_URL, or AWS itself."""
    region: str = ""
    """The region of the bucket of `uri`. If empty, kctl uses AWS_REGION or AWS_DEFAULT_REGION, or `us-east-1`."""
    credentials_file: str = ""
    """A file with `aws_access_key_id`, `aws_secret_access_key` and optionally `aws_session_token` in its profile
    `default`. If empty, kctl uses AWS_ACCESS_KEY_ID and related variables, or the machine's role."""
    partition_by: tuple[Annotated[str, Form(r"\S+", "a name")], ...] = ()
    """The columns that partition the table of mode `lake`."""
    merge_schema: bool = False
    """Whether kctl adds new columns of the transform to the table of mode `lake`. If `false`, a new column keeps the
    workers from starting."""
    target_file_bytes: SomeSize = "128m"
    """The target size of files when kctl compacts the table of mode `lake`. Files below half of this size count as
    small."""
    maintenance: Annotated[bool, NOW] = True
    """Whether the master maintains the table of mode `lake`. At quiet times, it compacts small files. Once a day, it
    removes files that no version of the last seven days uses."""
    block_messages: Annotated[int, number(1, 100_000), MESSAGES] = 500
    """Workers store each partition's messages in blocks of at most this many."""
    block_bytes: SomeSize = "1m"
    """The maximum bytes of messages (keys, values and headers, before compression) in one block. A larger message gets
    its own block."""
    compression: Literal["none", "snappy", "lz4", "zstd"] = "lz4"
    """The compression of blocks. `lz4` reduces JSON to a quarter. `zstd` reduces it to a sixth, with 50 % more
    processor time."""
    on_lost_offsets: Literal["stop", "continue"] = "stop"
    """What to do if the storage was emptied or replaced, so that it no longer knows the stored offset of a partition:
    `stop` with the reason, or `continue` at the committed offset."""
    on_other_storage: Literal["stop", "take_over"] = "stop"
    """What to do if the storage belongs to another group or cluster, or if the group's offsets were committed with
    another storage. `stop` stops the worker. `take_over` continues with this storage at the committed offset. For
    topics copied to another cluster, use `kctl storage migrate`."""
    limit: Annotated[int, number(0), MESSAGES] = 0
    """At this many unhandled messages in the storage, workers take no new batch. 0 means no limit."""
    limit_bytes: Size = ""
    """At this many stored bytes, including dead letters, workers take no new batch. Empty means no limit."""
    dead_limit: Annotated[int, number(0), MESSAGES] = 100_000
    """At this many dead letters, workers take no new batch until you requeue or delete some. 0 means no limit."""
    dead_expire_seconds: Seconds = 0.0
    """kctl permanently deletes dead letters older than this, with an event. 0 means never. In a table, kctl removes
    files with only such dead letters, once a day."""
    min_free: Size = "512m"
    """Workers take no new batch if the disk of `path` or `uri` has less free space than this, or less than 1 % free
    inodes. Empty means no check."""

    @property
    def kind(self) -> Kind:
        return KINDS[self.mode]


@dataclass(frozen=True, kw_only=True)
class SinkersSection(Section):
    """Sinkers, their handler and their retries. `[workers]` also sets how kctl starts, stops and restarts sinkers."""

    effect: ClassVar = NEXT_START

    count: Annotated[int, number(0, 1000), NOW] = 0
    """The number of sinkers."""
    handler: Annotated[str, Form(r"|[A-Za-z_][\w.]*:[A-Za-z_][\w.]*", "`package.module:function`")] = ""
    """The function or class that gets messages, as `package.module:name` (handlers.md). It is in the folder of the
    configuration file, or in an installed package."""
    batch_size: Annotated[int, number(1, 100_000), MESSAGES] = 500
    """The maximum number of messages in one call of the handler."""
    batch_bytes: SomeSize = "16m"
    """The maximum bytes, as stored, that a sinker claims at a time. A sinker always claims at least one block."""
    batch_wait_seconds: Annotated[float, number(0, 3600)] = 0.0
    """How long a sinker waits for a full batch after its first message. 0 means no wait."""
    lease_seconds: Annotated[float, number(1)] = 60.0
    """If a sinker neither settles a claimed message nor renews its lease for this long, another sinker gets the
    message. A sinker renews its leases every third of this time, even during a call of the handler."""
    max_tries: Annotated[int, number(1)] = 5
    """After this many deliveries without an acknowledgement, a message becomes a dead letter."""
    retry_backoff_seconds: Seconds = 1.0
    """The wait before a message is retried. It doubles with each try, up to an hour."""
    handler_timeout_seconds: Annotated[float, number(0.05)] = 300.0
    """A call of the handler fails if it takes longer than this. Unless the handler is `async`, kctl also restarts the
    sinker."""
    ordered: bool = False
    """Whether a failed message blocks later messages of its partition until it is acknowledged or becomes a dead
    letter."""


@dataclass(frozen=True, kw_only=True)
class CollectSection(Section):
    """How the master queries agents and brokers."""

    interval_seconds: Annotated[float, number(0.1, 3600)] = 1.0
    """How often the master queries agents and brokers."""
    timeout_seconds: Annotated[float, number(0.05, 600)] = 2.0
    """An agent that does not answer within this time counts as missing."""


@dataclass(frozen=True, kw_only=True)
class StatusSection(Section):
    """How kctl judges partitions and groups (status.md)."""

    window_seconds: Annotated[float, number(1, 86_400)] = 60.0
    """The time over which kctl judges a partition. A partition with pending messages may be without commits for at
    least this long. kctl uses a longer time if batches are long."""
    hold_seconds: Seconds = 5.0
    """kctl reports a better status only after the status has lasted this long."""
    batch_limit_seconds: Annotated[float, number(1)] = 600.0
    """Until a batch has run for this long, kctl does not expect its commit."""
    oldest_limit: Annotated[float, number(0)] = 0.0
    """A fleet is `degraded` if its oldest unhandled message is older than this, in seconds, and the age does not fall.
    0 means three median cycles, but at least 60 s."""
    allowed_lag: tuple[Annotated[str, Form(r".+=\d{1,18}", "`PATTERN=MESSAGES`, as in `payments-*=1`")], ...] = ()
    """How much lag of each partition of a group counts as no lag, as in `["payments-*=1"]`. The first pattern that
    matches the group's name applies. Use it for topics with transactions, whose end markers leave a lag of 1."""


@dataclass(frozen=True, kw_only=True)
class AdviceSection(Section):
    """How much spare capacity `kctl advise` plans for, and how fast its advice may change (advice.md)."""

    window_seconds: Annotated[float, number(60, 86_400)] = 900.0
    """The time over which kctl measures arrivals and batches."""
    utilisation: Annotated[float, number(0.1, 1)] = 0.7
    """The largest share of its time that a worker or sinker may be busy."""
    catch_up_seconds: Annotated[float, number(1, 86_400)] = 300.0
    """Within this time, the advised processes must handle the backlog (advice.md)."""
    pause_seconds: Seconds = 10.0
    """How long a rebalance interrupts reading when the number of workers changes."""
    up_after_seconds: Seconds = 180.0
    """kctl advises more processes after they have been needed for this long. It advises the lowest number needed in the
    last third of this time."""
    down_after_seconds: Seconds = 3600.0
    """kctl advises fewer processes after they have sufficed for this long. It advises the highest number needed in this
    time."""
    max_up: Annotated[float, number(1, 100)] = 2.0
    """The largest factor by which the number may rise in one step. One more process is always possible."""
    max_down: Annotated[float, number(0, 1)] = 0.4
    """The largest share by which the number may fall in one step. One process fewer is always possible."""
    gap_seconds: Seconds = 300.0
    """The shortest time between two changes of the number."""


@dataclass(frozen=True, kw_only=True)
class ExporterSection(Section):
    """Which consumer groups `kctl exporter` or a fleet's master collects (exporter.md). A pattern must match a whole
    group or topic name. It is a glob (`payments-*`) or a regular expression between slashes (`/payments-(eu|us)/`)."""

    effect: ClassVar = NOW

    all_groups: bool = False
    """Whether a fleet's master also collects every other group of its cluster. `kctl exporter` always does."""
    interval_seconds: Annotated[float, number(0.1, 3600)] = 10.0
    """How often the groups of a cluster are polled."""
    timeout_seconds: Annotated[float, number(0.05, 600)] = 5.0
    """A poll leaves out a broker that does not answer within this time."""
    stale_after_seconds: Annotated[float, number(1)] = 60.0
    """For this long, kctl serves the last values of a silent broker, with their age. After that, their series end."""
    groups: tuple[Pattern, ...] = ("*",)
    """Patterns of groups to collect."""
    groups_except: tuple[Pattern, ...] = ()
    """Patterns of groups not to collect, even if they match `groups`."""
    topics: tuple[Pattern, ...] = ("*",)
    """Patterns of topics to collect."""
    topics_except: tuple[Pattern, ...] = ()
    """Patterns of topics not to collect, even if they match `topics`."""
    without_partitions: tuple[Pattern, ...] = ()
    """Patterns of groups without series for partitions."""
    without_topics: tuple[Pattern, ...] = ()
    """Patterns of groups without series for partitions and topics."""
    max_partitions: Annotated[int, number(0), PARTITIONS] = 0
    """The maximum number of partitions with series in all groups of a cluster. Above it, kctl drops the partition
    series of the largest groups. `kctl_cluster_cut_groups` counts these groups. 0 means no limit."""
    read_committed: tuple[Pattern, ...] = ()
    """Patterns of groups that read only committed records. Their lag ends at the last stable offset."""


@dataclass(frozen=True, kw_only=True)
class HttpSection(Section):
    """The HTTP server of the master or of `kctl exporter` (http.md): the web page, API, metrics and health checks."""

    host: Annotated[str, Form(r"\S+", "a host name or an IP address")] = "127.0.0.1"
    """The IP address to listen on, or `localhost`. An address beyond this host requires a token. It also requires TLS
    or `insecure`."""
    port: Annotated[int, number(0, 65535)] = 9750
    """The port to listen on. `kctl exporter` defaults to 9751. With 0, kctl takes any free port, which `kctl status`
    shows."""
    token_file: Annotated[str, NOW] = ""
    """A file with the bearer token, or with two during a rotation. Each line has a token of at least 16 characters,
    optionally as `name: token`. Requests for changes always require a token. Beyond this host, all requests do."""
    read_token_file: Annotated[str, NOW] = ""
    """A file like `token_file`, for tokens that may only read, such as Prometheus's. If it is set, reading on loopback
    also requires a token."""
    tls_certificate: str = ""
    """A PEM file with the server's certificate and its chain. It turns on HTTPS."""
    tls_key: str = ""
    """The PEM file of the certificate's key, if `tls_certificate` does not contain it."""
    insecure: bool = False
    """Whether to serve beyond this host without TLS, where others can read tokens in transit. Use it behind a proxy or
    mesh with TLS."""
    allowed_hosts: Annotated[tuple[str, ...], NOW] = ()
    """Other host names by which clients may call this server without a token, such as the name of a proxy on this
    host."""


@dataclass(frozen=True, kw_only=True)
class HostsSection(Section):
    """Connects the masters of a fleet on several hosts, so that any master answers for all hosts (hosts.md)."""

    url: Annotated[
        str,
        Form(
            r"|https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[1-9]\d{0,4})?", "`https://host` or `https://host:port`"
        ),
    ] = ""
    """The address at which masters of other hosts reach this one. Its port defaults to `http.port`. If empty, the fleet
    runs on this host only."""
    name: Annotated[str, Form(f"|{NAME}", "letters, digits, `.`, `_` or `-`")] = ""
    """The unique name of this host. Empty means the system's host name."""
    group: str = ""
    """The consumer group in which the masters find each other. If empty, it is `kafka.group` with `.kctl-masters`
    appended. The master needs the right to READ this group. Give no other user this right."""
    token_file: str = ""
    """A file with a token to read from other masters. Use a token of their `http.read_token_file`."""
    operations_token_file: str = ""
    """A file with a token for operations on other masters. Use a token of their `http.token_file`. Empty means no
    operations on other hosts."""
    ca_file: str = ""
    """A PEM file with the authority that signs the hosts' certificates. Required with `https://`. Use an authority of
    the fleet's own, because kctl sends tokens to any server that this authority has certified."""
    allow_plain: bool = False
    """Whether to query masters over HTTP without TLS. kctl then sends them the token unencrypted."""
    local_storage: bool = False
    """Whether each host may have its own storage with mode `file`. Messages in the storage of a lost host are handled
    only after it returns."""
    forget_seconds: Annotated[float, number(60)] = 259_200.0
    """How long a lost host is reported as missing. `kctl forget-host` ends this earlier."""

    @property
    def own_name(self) -> str:
        """The name of this host. It is empty if the fleet runs on one host."""
        return (self.name or socket.gethostname()) if self.url else ""


@dataclass(frozen=True, kw_only=True)
class LogSection(Section):
    """The content of the log files."""

    level: Annotated[Literal["DEBUG", "INFO", "WARNING", "ERROR"], NOW] = "INFO"
    """The lowest level that is logged."""


@dataclass(frozen=True, kw_only=True)
class Config:
    """A checked configuration, with its sections in the order of docs/configuration.md. `sources` maps each
    `section.key` to the source of its value: `default`, `file`, the name of an environment variable, or `flag`."""

    path: Path
    fleet: FleetSection
    kafka: KafkaSection
    schema_registry: SchemaRegistrySection
    workers: WorkersSection
    engine: EngineSection
    spark: SparkSection
    storage: StorageSection
    sinkers: SinkersSection
    collect: CollectSection
    status: StatusSection
    advice: AdviceSection
    exporter: ExporterSection
    http: HttpSection
    hosts: HostsSection
    log: LogSection
    checkpoints: Mapping[str, CheckpointSection] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)


SECTIONS: dict[str, type[Section]] = {
    each.name: each.type for each in fields(Config) if isinstance(each.type, type) and issubclass(each.type, Section)
}
